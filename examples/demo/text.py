# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Generates text that a model can learn. The same seed gives the same text.

The text consists of invented words, so that a model can learn their spelling. A Markov chain
chooses the order of the words, so that a model can learn a grammar. Each sentence occurs twice in a
row, so that attention can copy the second occurrence from the first.
"""
import numpy as np

ALPHABET = " .abdefgiklmnoprstuvz"
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


class Text:
    def __init__(self, seed, words=32, successors=3):
        self._random = np.random.default_rng(seed)
        self._lexicon = self._make_lexicon(words)
        self._next = self._random.integers(words, size=(words, successors))
        self._word = 0

    def _make_lexicon(self, words):
        pick = self._random.choice
        lexicon = set()
        while len(lexicon) < words:
            syllables = self._random.integers(1, 4)
            lexicon.add("".join(pick(list(CONSONANTS)) + pick(list(VOWELS))
                                for _ in range(syllables)))
        return sorted(lexicon)

    def _sentence(self):
        words = []
        for _ in range(self._random.integers(3, 7)):
            self._word = self._random.choice(self._next[self._word])
            words.append(self._lexicon[self._word])
        sentence = " ".join(words) + ". "
        return sentence * 2

    def _line(self, characters):
        line = ""
        while len(line) < characters:
            line += self._sentence()
        return line[:characters]

    def batch(self, count, length):
        """Returns int32[count, length + 1]. The first `length` columns are the inputs, and the last
        `length` columns are the targets."""
        return np.array([[ALPHABET.index(c) for c in self._line(length + 1)]
                         for _ in range(count)], np.int32)
