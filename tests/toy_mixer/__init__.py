"""A custom family in one folder: an MLP-Mixer (Tolstikhin et al., 2021) of stages."""

from .backbone import ToyMixer as ToyMixer
