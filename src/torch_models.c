/* SPDX-License-Identifier: BSD-3-Clause */
/* u32 of the default generator that models draw when they are made (random weights,
 * 1000 classes): what stands between torch.manual_seed and the first loader. A replaced
 * head Linear(a, b) adds (a + 1) * b, which the word skip can tell. */
#include <stddef.h>
#include <string.h>

#include "torch_draw.h"

static const struct {
	const char *name;
	uint64_t draws;
} models[] = {
    {"torchvision/alexnet", 61100840},
    {"torchvision/vgg11", 265714728},
    {"torchvision/vgg16", 276701672},
    {"torchvision/vgg16_bn", 276701672},
    {"torchvision/resnet18", 22846824},
    {"torchvision/resnet34", 43048296},
    {"torchvision/resnet50", 48958824},
    {"torchvision/resnet101", 86838632},
    {"torchvision/resnet152", 118033768},
    {"torchvision/resnext50_32x4d", 47872360},
    {"torchvision/wide_resnet50_2", 135581032},
    {"torchvision/densenet121", 14765416},
    {"torchvision/googlenet", 25974584},
    {"torchvision/inception_v3", 54248080},
    {"torchvision/mobilenet_v2", 6940520},
    {"torchvision/mobilenet_v3_small", 5056624},
    {"torchvision/mobilenet_v3_large", 10910016},
    {"torchvision/shufflenet_v2_x1_0", 2262424},
    {"torchvision/squeezenet1_0", 2492872},
    {"torchvision/mnasnet1_0", 8689864},
    {"torchvision/efficientnet_b0", 10482724},
    {"torchvision/efficientnet_b3", 24270840},
    {"torchvision/efficientnet_v2_s", 42573056},
    {"torchvision/regnet_y_400mf", 8627776},
    {"torchvision/convnext_tiny", 57090184},
    {"torchvision/convnext_base", 176955240},
    {"torchvision/vit_b_16", 143759848},
    {"torchvision/vit_b_32", 147185896},
    {"torchvision/swin_t", 73733026},
    {"torchvision/swin_v2_t", 73881544},
    {"torchvision/maxvit_t", 61606824},
    {"timm/resnet18", 22846824},
    {"timm/resnet50", 48958824},
    {"timm/vit_tiny_patch16_224", 11208232},
    {"timm/vit_small_patch16_224", 43649128},
    {"timm/vit_base_patch16_224", 172231912},
    {"timm/deit_small_patch16_224", 43649128},
    {"timm/convnext_tiny", 57090184},
    {"timm/efficientnet_b0", 10482868},
    {"timm/mobilenetv3_large_100", 10910160},
    {"timm/swin_tiny_patch4_window7_224", 56458402},
    {"timm/regnety_016", 22288350},
    {"timm/tf_efficientnetv2_s", 42573200},
};

#define MODELS (sizeof models / sizeof models[0])

const char *clair_torch_model_at(unsigned i)
{
	return i < MODELS ? models[i].name : NULL;
}

/* torchvision's names are taken without their prefix, too. */
uint64_t clair_torch_model_draws(const char *name)
{
	static const char prefix[] = "torchvision/";

	for (size_t i = 0; i < MODELS; i++) {
		const char *own = models[i].name;

		if (!strcmp(own, name))
			return models[i].draws;
		if (!strncmp(own, prefix, sizeof prefix - 1) &&
		    !strcmp(own + sizeof prefix - 1, name))
			return models[i].draws;
	}
	return 0;
}
