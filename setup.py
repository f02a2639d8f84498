"""What setup.cfg cannot say: an index shows the README without the clone beside it, so there the links into the clone
become the names of files, and its pictures their captions."""

import re
from pathlib import Path

from setuptools import setup

readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
readme = re.sub(r"!\[([^]]*)\]\((?!https?:)[^)]*\)", r"*(picture: \1)*", readme)
setup(long_description=re.sub(r"\[([^]]*)\]\((?!https?:|#)([^)]*)\)", r"\1", readme))
