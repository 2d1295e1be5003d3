"""The canary's prompts: plain beginnings whose next token a language model is fairly sure of.

They name nobody and ask for nothing. A change here is a new reference for everybody.
"""

from __future__ import annotations

from typing import Final

PROMPTS: Final[tuple[str, ...]] = (
    "The capital of France is",
    "One, two, three, four,",
    "Monday, Tuesday, Wednesday,",
    "The opposite of hot is",
    "Water boils at one hundred degrees",
    "The sun rises in the",
    "A triangle has three",
    "def add(a, b):\n    return a +",
    "for i in range(10):\n    print(",
    '{"name": "apple", "colour":',
    "SELECT name FROM users WHERE",
    "import numpy as",
    "<html><head><title>",
    "Spring, summer, autumn and",
    "Two plus two equals",
    "The first letter of the alphabet is",
    "Bread and",
    "Once upon a",
    "Dear customer, thank you for your",
    "In conclusion, the results show that the",
    "The patient was advised to drink more",
    "To open the file, click on the",
    "Le chat est sur la",
    "Guten Morgen, wie geht es",
    "El perro corre por el",
    "Roses are red, violets are",
    "The train to the airport leaves at",
    "if x is None:\n    raise",
    "# Installation\n\nRun the following",
    "The square root of sixteen is",
    "Ice is frozen",
    "The quick brown fox jumps over the lazy",
)
