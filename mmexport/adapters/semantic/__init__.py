"""Export semantic segmentation: mmseg's encoder-decoders, mask classifiers and open-vocabulary models."""
