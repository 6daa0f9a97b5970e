# SPDX-License-Identifier: BSD-3-Clause
"""Recipes of classes B, C, R and E."""
import random

from loaders import *


# --- manifests --------------------------------------------------------------------------------

@recipe(3)
def r3():
    files, texts, boxed, by_id, wide = coco(2500, 3)
    from torch.utils.data import BatchSampler, DistributedSampler, Sampler

    class Grouped(BatchSampler):
        """Batches of one aspect ratio, filled up at the end."""

        def __init__(self, sampler, groups, batch):
            self.sampler, self.groups, self.batch_size = sampler, groups, batch

        def __iter__(self):
            buffers, first, count = {}, {}, 0
            for i in self.sampler:
                g = self.groups[i]
                buffers.setdefault(g, []).append(i)
                first.setdefault(g, []).append(i)
                if len(buffers[g]) == self.batch_size:
                    yield buffers[g]
                    count += 1
                    buffers[g] = []
            for g in sorted(buffers, key=lambda g: -len(buffers[g])):
                if count >= len(self):
                    return
                if buffers[g]:
                    more = (first[g] * self.batch_size)[:self.batch_size - len(buffers[g])]
                    yield buffers[g] + more
                    count += 1

        def __len__(self):
            return len(self.sampler) // self.batch_size

    t = Trace(3, "B", "torchvision-detection", files, texts, world=2)
    groups = [int(wide[k]) for k in by_id]
    return torch_loader(t, len(by_id), lambda d, r: dict(batch_sampler=Grouped(DistributedSampler(
        d, num_replicas=2, rank=r), groups, 2)), 4, 2, lambda i: (by_id[i],), range(2))


@recipe(4)
def r4():
    rng = random.Random(4)
    stems = ["%d_%06d" % (rng.randrange(2007, 2013), k) for k in range(1500)]
    files = [p for s in stems for p in ("VOC2012/JPEGImages/%s.jpg" % s,
                                        "VOC2012/SegmentationClass/%s.png" % s)]
    listed = rng.sample(range(1500), 1200)
    text = "\n".join(stems[k] for k in listed)
    return ddp(4, "B", "torchvision-segmentation", files, listed, 2, range(2), 4, 8,
               lambda i: both(listed[i]),
               texts={"VOC2012/ImageSets/Segmentation/train.txt": text})


@recipe(18)
def r18():
    files, texts, boxed, by_id, wide = coco(2500, 18)
    t = Trace(18, "B", "mmdetection", files, texts, hidden=True, stay=True)
    flags = [0 if wide[k] else 1 for k in boxed]
    return ours(t, len(boxed), "mmdet-aspect-ratio", 2, 2, split=boxed, seed=1530123874,
                flags=flags, batch=2)


def detectron(number, name, seed, hidden):
    files, texts, boxed, by_id, wide = coco(2500, number)
    t = Trace(number, "B", name, files, texts, hidden=hidden, stay=True)
    return ours(t, len(by_id), "detectron2", 4, 16, split=by_id, seed=seed)


@recipe(20)
def r20():
    return detectron(20, "detectron2", -1, False)


@recipe(21)
def r21():
    return detectron(21, "maskdino", 918273645, True)


def speech(number, top, ending):
    rng = random.Random(number)
    files = sorted("%s%d/%d/%d-%d-%04d%s" % (top, s, c, s, c, u, ending)
                   for s in rng.sample(range(1000), 40) for c in rng.sample(range(9999), 5)
                   for u in range(12))
    lengths = [rng.randrange(16000, 560000) for _ in files]
    listed = list(range(len(files)))
    rng.shuffle(listed)
    return files, lengths, listed


@recipe(43)
def r43():
    files, lengths, listed = speech(43, "LibriSpeech/train-clean-100/", ".flac")
    text = "/data/LibriSpeech/train-clean-100\n" + "\n".join(
        "%s\t%d" % (files[k].split("/", 2)[2], lengths[k]) for k in listed)
    t = Trace(43, "B", "wav2vec2", files, {"LibriSpeech/train.tsv": text})
    return ours(t, len(listed), "fairseq", 4, 4, split=listed, kind="raw-audio", seed=1,
                max_tokens=1400000, max_sample_size=250000, lengths=[lengths[k] for k in listed])


@recipe(44)
def r44():
    files, lengths, listed = speech(44, "downloads/wavs/", ".wav")
    names = [files[k].rsplit("/", 1)[1][:-4] for k in listed]
    texts = {"dump/wav.scp": "\n".join("%s %s" % (a, files[k]) for a, k in zip(names, listed)),
             "dump/speech_shape": "\n".join("%s %d" % (a, lengths[k])
                                            for a, k in zip(names, listed))}
    t = Trace(44, "B", "espnet2", files, texts)
    return ours(t, len(listed), "espnet", 1, 20, split=listed, type="folded", batch=20,
                lengths=[lengths[k] for k in listed])


@recipe(45)
def r45():
    files, lengths, listed = speech(45, "LibriSpeech/train-clean-100/", ".flac")
    text = "ID,duration,wav,spk_id,wrd\n" + "\n".join(
        "%s,%.2f,%s,%s,X" % (files[k].rsplit("/", 1)[1][:-5], lengths[k] / 16000, files[k], "1")
        for k in listed)
    up = sorted(listed, key=lambda k: lengths[k])
    t = Trace(45, "B", "speechbrain-ascending", files, {"train.csv": text})
    for e in range(EPOCHS):
        t.epochs.append(deal(up, 4, 8, one, e))
    return t


@recipe(46)
def r46():
    import json
    files, lengths, listed = speech(46, "LibriSpeech/train-clean-100/", ".wav")
    text = "\n".join(json.dumps(dict(audio_filepath=files[k], duration=lengths[k] / 16000,
                                     text="x")) for k in listed)
    return ddp(46, "B", "nemo-asr", files, listed, 2, range(2), 4, 16,
               texts={"manifest.json": text})


@recipe(48)
def r48():
    names = ["bfd_uniref_hits.a3m", "mgnify_hits.a3m", "pdb70_hits.hhr", "uniref90_hits.a3m"]
    rng = random.Random(48)
    chains = ["%d%s_A" % (rng.randrange(1, 10), "".join(rng.choice("abcdefghijklmnopqrstuvwxyz0123")
              for _ in range(3))) for _ in range(620)]
    chains = sorted(set(chains))[:500]
    files = ["alignments/%s/%s" % (c, x) for c in chains for x in names]
    files += ["mmcif/%s.cif" % c[:4] for c in chains]
    t = Trace(48, "B", "openfold", files)
    listed = list(range(len(chains)))
    rng.shuffle(listed)  # as listdir has them
    return ours(t, len(chains), "openfold", 4, 1, lambda i: [2000 + i] + [4 * i + k for k in
                range(4)], split=listed, seed=43)


@recipe(52)
def r52():
    files, texts, boxed, by_id, wide = coco(2500, 52)
    return ddp(52, "B", "retinanet", files, by_id, 2, range(2), 4, 8, texts=texts)


@recipe(57)
def r57():
    rng = random.Random(57)
    files = ["nuscenes/%s/LIDAR_TOP/n%02d-%013d.bin" % (x, k % 90, rng.randrange(10 ** 13))
             for k in range(240) for x in ["samples"] + ["sweeps"] * 10]
    t = Trace(57, "B", "mmdet3d-nuscenes", files, hidden=True)
    listed = list(range(240))
    rng.shuffle(listed)
    return ours(t, 240, "mmengine", 4, 4, lambda i: range(11 * i, 11 * i + 11), split=listed,
                seed=1203948576)


@recipe(58)
def r58():
    rng = random.Random(58)
    cameras = ["CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_FRONT_LEFT", "CAM_BACK", "CAM_BACK_LEFT",
               "CAM_BACK_RIGHT"]
    n = 350
    files = ["nuscenes/samples/%s/n%02d__%s__%d.jpg" % (c, k % 90, c, 1532402927647951 + 500000 * k)
             for k in range(n) for c in cameras]

    def queue(i):
        before = list(range(max(i - 4, 0), i))
        rng.shuffle(before)
        return [6 * k + c for k in sorted(before[1:]) + [i] for c in range(6)]

    t = Trace(58, "B", "bevformer", files)
    return ours(t, n, "mmdet-distributed-group", 4, 1, queue, seed=0, flags=[1] * n, batch=1)


# --- hidden states ----------------------------------------------------------------------------

@recipe(22)
def r22():
    files = ["sa-v/%s/sav_%06d/%05d.%s" % (x, v, k, "jpg" if x == "JPEGImages" else "png")
             for v in range(60) for k in range(24) for x in ("JPEGImages", "Annotations")]
    rng = random.Random(22)

    def window(v):
        first = rng.randrange(24 - 8 + 1)
        return [48 * v + 2 * k + m for k in range(first, first + 8) for m in (0, 1)]

    t = Trace(22, "C", "sam2", files, world=2)
    return ours(t, 60, "sam2", 2, 1, window, ranks=range(2), seed=0, factors=[1.0] * 60)


def default(number, name, files, samples, workers, batch, opens, seed, texts=()):
    t = Trace(number, "C", name, files, texts, hidden=True)
    return torch_loader(t, len(samples), lambda d, r: dict(shuffle=True), workers, batch, opens,
                        seed=seed)


@recipe(24)
def r24():
    files = pairs(1200, "imagesTr/img%04d.nii.gz", "labelsTr/seg%04d.nii.gz")
    return default(24, "monai-unet", files, range(1200), 4, 2, both, 7403285619)


@recipe(26)
def r26():
    import numpy
    import torch
    files = class_tree(2600, 37, "images/", ".jpg", 26, wnid=False)
    t = Trace(26, "C", "fastai", files, hidden=True, walk="fastai")
    p = torch.randperm(len(files), generator=torch.Generator().manual_seed(42)).tolist()
    train = p[len(files) // 5:]
    return ours(t, len(train), "fastai", 4, 64, split=train, seed=87236451)


@recipe(40)
def r40():
    import json
    files = sorted("train/%04x.png" % (k * 7919 % 65536) for k in range(2200))
    text = "\n".join(json.dumps(dict(file_name=f[6:], text="a picture")) for f in files)
    return default(40, "diffusers-text-to-image", files, range(2200), 0, 16, one, 3948571620,
                   {"train/metadata.jsonl": text})


@recipe(41)
def r41():
    files = sorted("10_cat/img (%d).png" % k for k in range(2100))
    rng = random.Random(41)
    bucket = [rng.randrange(3) for _ in files]
    members = [k for b in range(3) for k in range(len(files)) if bucket[k] == b]
    t = Trace(41, "C", "kohya", files, hidden=True, stay=True)
    return ours(t, len(files), "kohya", 4, 4, split=members, seed=1122334455,
                buckets=[bucket.count(b) for b in range(3)], batch=4, workers=4, persistent=1,
                torch_seed=99887766)


# --- read once --------------------------------------------------------------------------------

def once(number, name, files, threads=0, texts=()):
    t = Trace(number, "R", name, files, texts)
    o = list(range(len(files)))
    t.epochs.append([(0, 0, i) for i in (jitter(o, threads, number) if threads else o)])
    return t


@recipe(25)
def r25():
    import json
    rng = random.Random(25)
    files = ["Task/imagesTr/case_%04d.nii.gz" % k for k in rng.sample(range(9999), 2400)]
    text = json.dumps(dict(training=[dict(image=f[5:], fold=k % 5) for k, f in enumerate(files)]),
                      indent=1)
    return once(25, "auto3dseg", files, 8, {"Task/dataset.json": text})


@recipe(47)
def r47():
    return once(47, "whisper-map", sorted("clips/common_voice_%08d.mp3" % (k * 7717 % 10 ** 8)
                                          for k in range(2400)))


@recipe(56)
def r56():
    return once(56, "pyg-in-memory", sorted("raw/graph_%d.npz" % k for k in range(2400)))


@recipe(60)
def r60():
    return once(60, "robomimic", ["demos/demo_%d.hdf5" % k for k in range(2400)])


@recipe(61)
def r61():
    return once(61, "gaussian-splatting", ["images/DSC%05d.JPG" % (k + 5000) for k in range(2400)])


@recipe(62)
def r62():
    import json
    files = ["images/frame_%05d.png" % (k + 1) for k in range(2400)]
    return once(62, "nerfstudio", files, 6, {"transforms.json": json.dumps(
        dict(frames=[dict(file_path=f) for f in files]))})


# --- unpredictable ----------------------------------------------------------------------------

@recipe(17)
def r17():
    files, texts, boxed, by_id, wide = coco(2200, 17)
    rng = random.Random(17)
    t = Trace(17, "E", "yolox", files, texts, stay=True)
    return ours(t, 2200, "detectron2", 4, 16, lambda i: [i] + [rng.randrange(2200) for _ in
                range(3)], seed=0)


@recipe(23)
def r23():
    files = ["nnUNet/case_%04d%s" % (k, x) for k in range(700) for x in ("_seg.b2nd", ".b2nd",
                                                                        ".pkl")]
    rng = random.Random(23)
    t = Trace(23, "E", "nnunet", files, stay=True)
    for e in range(EPOCHS):
        t.epochs.append(merge([[(0, w, 3 * c + k) for _ in range(60)
                                for c in [rng.randrange(700)] for k in (2, 1, 0)]
                               for w in range(12)], e))
    return t


def shards(number, name, interleave, shuffle_window):
    files = ["imagenet/train-%05d-of-02400" % k for k in range(2400)]
    t = Trace(number, "E", name, files, stay=True)
    rng = random.SystemRandom(number)
    for e in range(EPOCHS):
        o = list(range(2400))
        rng.shuffle(o)
        t.epochs.append([(0, 0, i) for i in jitter(o, shuffle_window, e)])
    return t


@recipe(29)
def r29():
    return shards(29, "tf-resnet", 10, 10)


@recipe(30)
def r30():
    return shards(30, "big-vision", 16, 16)


@recipe(42)
def r42():
    files = ["laion/%05d.tar" % k for k in range(2400)]
    rng = random.SystemRandom()
    t = Trace(42, "E", "stable-diffusion-laion", files, stay=True)
    for e in range(EPOCHS):
        t.epochs.append(merge([[(0, w, rng.randrange(2400)) for _ in range(600)]
                               for w in range(4)], e))
    return t
