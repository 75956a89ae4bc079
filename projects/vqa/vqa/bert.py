"""BERT layers on torch's own attention, with BERT's names: weight files in BERT's usual layout fit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from vitnas_core.checkpoints import load_file
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.registry import MODELS

from .tokenizer import WordPiece

EPS = 1e-12
"""Epsilon of BERT's norms."""

STD = 0.02
"""Standard deviation of BERT's weights before training."""

Question = str | Tensor
"""Words, or token ids."""


def dense(inputs: int, outputs: int, std: float = STD) -> nn.Linear:
    """Build a linear layer with BERT's initialisation."""
    layer = nn.Linear(inputs, outputs)
    nn.init.trunc_normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


class Heads(nn.Module):
    """Project tokens to queries, keys and values.

    Args:
        width: Width of the tokens.
        num_heads: Number of heads; divides the width.
        std: Standard deviation of the weights before training.
    """

    def __init__(self, width: int, num_heads: int, std: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value = (dense(width, width, std) for _ in range(3))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Tokens (B, N, D) → queries, keys and values, each (B, heads, N, d)."""
        layers = (self.query, self.key, self.value)
        return [layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for layer in layers]


class Residual(nn.Module):
    """Add a projected branch to the tokens, then normalise.

    Args:
        inputs: Width of the branch.
        width: Width of the tokens.
        drop: Dropout of the projected branch.
        std: Standard deviation of the weights before training.
    """

    def __init__(self, inputs: int, width: int, drop: float, std: float) -> None:
        super().__init__()
        self.drop = drop
        self.dense, self.LayerNorm = dense(inputs, width, std), nn.LayerNorm(width, EPS)

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        """Tokens (B, N, D) and a branch (B, N, inputs) → (B, N, D)."""
        return self.LayerNorm(x + F.dropout(self.dense(branch), self.drop, self.training))


class BertLayer(nn.Module):
    """Attention and MLP, each followed by a residual and a norm; modules have the names of BERT's files.

    Args:
        width: Width of the tokens.
        num_heads: Number of heads; divides the width.
        hidden: Hidden width of the MLP.
        drop: Dropout of the attention weights and of both branches.
        std: Standard deviation of the weights before training.
    """

    def __init__(self, width: int, num_heads: int, hidden: int, drop: float, std: float = STD) -> None:
        super().__init__()
        self.drop = drop
        self.attention = nn.ModuleDict(
            {'self': Heads(width, num_heads, std), 'output': Residual(width, width, drop, std)}
        )
        self.intermediate = nn.ModuleDict({'dense': dense(width, hidden, std)})
        self.output = Residual(hidden, width, drop, std)

    def weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """Compute attention weights: tokens (B, N, D) and their mask (B, N) → (B, heads, N, N)."""
        query, key, _ = self.attention['self'](x)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        return scores.masked_fill(~mask[:, None, None], -math.inf).softmax(-1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Tokens (B, N, D) and their mask (B, N), which keeps at least one token per sample → (B, N, D)."""
        query, key, value = self.attention['self'](x)
        drop = self.drop if self.training else 0.0
        out = F.scaled_dot_product_attention(query, key, value, mask[:, None, None], drop)
        x = self.attention['output'](x, out.transpose(1, 2).flatten(2))
        return self.output(x, F.gelu(self.intermediate['dense'](x)))


class BertModule(BaseModule):
    """Base class of text encoder and fusion: BERT layers that can load a file of BERT.

    Args:
        width: Width of the tokens.
        depth: Number of layers.
        num_heads: Number of heads per layer.
        hidden: Hidden width of the MLPs.
        drop_rate: Dropout.
        init_std: Standard deviation of the layers' weights before training.
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` for the weights of BERT.

    Raises:
        VitnasError: ``num_heads`` does not divide the width, or a number is out of range.
    """

    is_init: bool

    def __init__(
        self,
        width: int,
        depth: int,
        num_heads: int,
        hidden: int | None,
        drop_rate: float,
        init_std: float,
        init_cfg: dict | None,
    ) -> None:
        super().__init__(init_cfg)
        name = type(self).__name__
        if num_heads < 1 or width % num_heads:
            raise VitnasError(f'num_heads of {name} should divide its width {width}, but got {num_heads}')
        if depth < 0 or not 0 <= drop_rate < 1:
            raise VitnasError(
                f'{name} should have depth ≥ 0 and 0 ≤ drop_rate < 1, but got depth={depth}, drop_rate={drop_rate}'
            )
        if init_cfg is not None and (not isinstance(init_cfg, dict) or set(init_cfg) != {'type', 'checkpoint'}):
            raise VitnasError(
                f"init_cfg of {name} should be None or dict(type='Pretrained', checkpoint=FILE), but got {init_cfg!r}"
            )
        self.width, self.drop_rate = width, drop_rate
        self.layers = [BertLayer(width, num_heads, hidden or 4 * width, drop_rate, init_std) for _ in range(depth)]
        self.encoder = nn.ModuleDict({'layer': nn.ModuleList(self.layers)})

    def run(self, x: Tensor, mask: Tensor) -> Tensor:
        """Run tokens (B, N, D) with their mask (B, N) through all layers."""
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def init_weights(self) -> None:
        """Load the file that ``init_cfg`` names, if any; all other weights are initialised already."""
        if self.init_cfg and not self.is_init:
            self.load_bert(self.init_cfg['checkpoint'])
        self.is_init = True

    def load_bert(self, path: str | os.PathLike) -> None:
        """Load weights from a file in BERT's usual layout; weights that this module lacks are ignored.

        Raises:
            CheckpointError: The file lacks a weight, or has it in another shape.
        """
        weights = read_bert(path)
        own = self.state_dict()
        for name, tensor in own.items():
            source = self.bert_names().get(name, lambda found, name=name: found.get(name))(weights)
            if source is None or source.shape != tensor.shape:
                has = 'lacks it' if source is None else f'has {tuple(source.shape)}'
                raise CheckpointError(f'{name} should have shape {tuple(tensor.shape)}, but {path} {has}')
            tensor.copy_(source)

    def bert_names(self) -> dict[str, Callable[[Mapping[str, Tensor]], Tensor | None]]:
        """Map own weights to BERT's where the names differ: name → function of BERT's weights."""
        return {}


def read_bert(path: str | os.PathLike) -> dict[str, Tensor]:
    """Read a file of BERT, without the prefix of whole models and with today's names of norms."""
    weights = load_file(path)['state_dict']
    renamed = {}
    for name, tensor in weights.items():
        for old, new in (('.gamma', '.weight'), ('.beta', '.bias')):
            if name.endswith(f'LayerNorm{old}'):
                name = name.removesuffix(old) + new
        renamed[name.removeprefix('bert.')] = tensor
    return renamed


@MODELS.register_module()
class BertEncoder(BertModule):
    """Encode questions by BERT's embeddings and, with ``depth``, its layers.

    Args:
        vocab: WordPiece vocabulary file, one token per line.
        vocab_size: Rows of the token table. Defaults to 30522, BERT's.
        width: Width of the tokens. Defaults to 768.
        depth: Number of layers. Defaults to 0: embeddings only, as in SOHO.
        num_heads: Number of heads per layer. Defaults to 12.
        hidden: Hidden width of the MLPs. Defaults to None: four times the width.
        positions: Rows of the position table. Defaults to 512.
        max_length: Longer questions are cut to this number of tokens. Defaults to 64.
        drop_rate: Dropout. Defaults to 0.1.
        init_std: Standard deviation of the layers' weights before training. Defaults to 0.02, which suits BERT's
            width; narrower layers need more.
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` for the weights of BERT. Defaults to None.

    Raises:
        VitnasError: As in :class:`BertModule`, or ``max_length`` exceeds ``positions``.
    """

    def __init__(
        self,
        vocab: str,
        vocab_size: int = 30522,
        width: int = 768,
        depth: int = 0,
        num_heads: int = 12,
        hidden: int | None = None,
        positions: int = 512,
        max_length: int = 64,
        drop_rate: float = 0.1,
        init_std: float = STD,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(width, depth, num_heads, hidden, drop_rate, init_std, init_cfg)
        if not 3 <= max_length <= positions:
            raise VitnasError(f'max_length should be 3 to {positions}, the positions, but got {max_length}')
        self.tokenizer = WordPiece(vocab, vocab_size, max_length)
        sizes = {'word': vocab_size, 'position': positions, 'token_type': 2}
        tables = {f'{name}_embeddings': nn.Embedding(size, width) for name, size in sizes.items()}
        for table in tables.values():
            nn.init.trunc_normal_(table.weight, std=STD)
        self.embeddings = nn.ModuleDict({**tables, 'LayerNorm': nn.LayerNorm(width, EPS)})

    def forward(self, questions: Sequence[Question]) -> tuple[Tensor, Tensor]:
        """Embed questions.

        Args:
            questions: Words or token ids of each question.

        Returns:
            The tokens, (B, N, D), and their mask, (B, N), False for padding.

        Raises:
            VitnasError: The vocabulary is unusable, or knows no word of a question.
        """
        tables: dict[str, Any] = dict(self.embeddings.items())
        device = tables['LayerNorm'].weight.device
        ids = [self.tokenizer(q) if isinstance(q, str) else q for q in questions]
        longest = max(len(one) for one in ids)
        padded = torch.stack([F.pad(one, (0, longest - len(one))) for one in ids]).to(device)
        lengths = torch.tensor([len(one) for one in ids], device=device)
        places = torch.arange(longest, device=device)
        x = tables['word_embeddings'](padded) + tables['position_embeddings'](places)
        x = tables['LayerNorm'](x + tables['token_type_embeddings'].weight[0])
        mask = places < lengths[:, None]
        return self.run(F.dropout(x, self.drop_rate, self.training), mask), mask


@MODELS.register_module()
class FusionTransformer(BertModule):
    """Let tokens of a question and of an image attend to each other in BERT layers.

    Args:
        width: Width of the tokens. Defaults to 768.
        depth: Number of layers. Defaults to 12.
        num_heads: Number of heads per layer. Defaults to 12.
        hidden: Hidden width of the MLPs. Defaults to None: four times the width.
        drop_rate: Dropout. Defaults to 0.1.
        init_std: Standard deviation of the layers' weights before training. Defaults to 0.02, which suits BERT's
            width; narrower layers need more.
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` for the weights of BERT. Defaults to None.
    """

    def __init__(
        self,
        width: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        hidden: int | None = None,
        drop_rate: float = 0.1,
        init_std: float = STD,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(width, depth, num_heads, hidden, drop_rate, init_std, init_cfg)
        self.image_type = nn.Parameter(nn.init.trunc_normal_(torch.empty(width), std=STD))

    def bert_names(self) -> dict[str, Callable[[Mapping[str, Tensor]], Tensor | None]]:
        """Image tokens are BERT's second segment."""

        def second(weights: Mapping[str, Tensor]) -> Tensor | None:
            table = weights.get('embeddings.token_type_embeddings.weight')
            return None if table is None or len(table) < 2 else table[1]

        return {'image_type': second}

    def forward(self, text: Tensor, mask: Tensor, image: Tensor | None) -> Tensor:
        """Fuse questions with images.

        Args:
            text: Tokens of the questions, (B, N, D).
            mask: Their mask, (B, N), False for padding.
            image: Tokens of the images, (B, M, D); None to use the question alone.

        Returns:
            All tokens, (B, N + M, D), question first.
        """
        if image is None:
            return self.run(text, mask)
        there = mask.new_ones(image.shape[:2])
        return self.run(torch.cat([text, image + self.image_type], 1), torch.cat([mask, there], 1))
