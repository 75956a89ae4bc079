"""WordPiece tokens by the ``tokenizers`` library, from a BERT vocabulary file."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitnas_core.errors import VitnasError

PAD, UNKNOWN, START, END = SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]')
"""Tokens that every vocabulary needs, padding on its first line."""


class WordPiece:
    """Turn a question into token ids, lower case, between ``[CLS]`` and ``[SEP]``; the first call reads the file.

    Args:
        vocab: The vocabulary file, one token per line.
        size: Largest number of lines.
        max_length: Longer questions are cut to this number of tokens.
    """

    def __init__(self, vocab: str | Path, size: int, max_length: int) -> None:
        self.vocab, self.size, self.max_length = Path(vocab), size, max_length

    @functools.cached_property
    def _tokenizer(self) -> Any:
        try:
            from tokenizers import BertWordPieceTokenizer
        except ImportError as err:
            raise VitnasError(
                f'vitnas.BertEncoder reads questions by the package tokenizers, which does not import ({err}); '
                f"install the extra `vqa`: pip install 'vitnas[vqa]', in a checkout pip install -e '.[vqa]'"
            ) from err
        if not self.vocab.is_file():
            raise VitnasError(f'there is no vocabulary file {self.vocab}; it should have one WordPiece token per line')
        lines = self.vocab.read_text(encoding='utf-8').splitlines()
        missing = [token for token in SPECIAL if token not in lines]
        if missing or lines[0] != PAD:
            what = f'lacks {missing[0]}' if missing else f'should have {PAD} on its first line, but has {lines[0]!r}'
            raise VitnasError(f'the vocabulary {self.vocab} {what}')
        if len(lines) > self.size:
            raise VitnasError(f'{self.vocab} has {len(lines):,} tokens, but vocab_size is {self.size:,}')
        tokenizer = BertWordPieceTokenizer(str(self.vocab), lowercase=True)
        tokenizer.enable_truncation(self.max_length)
        return tokenizer

    def __call__(self, question: str) -> Tensor:
        """Return the token ids of a question.

        Raises:
            VitnasError: ``tokenizers`` is missing, or the file is unusable or knows no word of the question.
        """
        found = self._tokenizer.encode(question)
        if not any(token not in SPECIAL and token.strip('#').isalnum() for token in found.tokens):
            raise VitnasError(f'the vocabulary {self.vocab} knows no word of the question {question!r}')
        return torch.tensor(found.ids)

    def tokens(self, question: str) -> list[str]:
        """Return the tokens of a question as text, including ``[CLS]`` and ``[SEP]``."""
        return self._tokenizer.encode(question).tokens

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != '_tokenizer'}
