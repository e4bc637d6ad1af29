"""Docstrings in the styles that tool authors use."""

from __future__ import annotations

import pytest

from holdfast.tools.schema.docstrings import read_docstring

GOOGLE = """Sends a letter.

    It goes out at once.

    Args:
        to (str): Who gets it,
            by full name.
        body: The text: all of it.

    Returns:
        str: to: nobody
    """
NUMPY = """
    Sends a letter.

    It goes out at once.

    Parameters
    ----------
    to : str
        Who gets it,
        by full name.
    body
        The text: all of it.

    Returns
    -------
    str
        A number.
    """
SPHINX = """Sends a letter.

    It goes out at once.

    :param str to: Who gets it,
        by full name.
    :type to: str
    :param body: The text: all of it.
    :returns: a number
    """
ODD = """Sends a letter.

It goes out at once.
      Args:
   to: Who gets it,
 by full name.
            body (Optional[Dict[str, int]]): The text: all of it.
  Raises:
    ValueError: when body is empty
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX, ODD], ids=["google", "numpy", "sphinx", "odd indentation"])
def test_every_style_gives_the_description_and_the_parameters(text: str) -> None:
    read = read_docstring(text, ["to", "body"])
    assert read.description == "Sends a letter.\n\nIt goes out at once."
    assert read.parameters == {"to": "Who gets it, by full name.", "body": "The text: all of it."}


def test_a_docstring_of_no_style_is_all_description() -> None:
    assert read_docstring("Adds: two numbers.\nAlways.", ["a"]).description == "Adds: two numbers.\nAlways."


def test_a_line_that_starts_with_an_unknown_name_goes_on_with_the_entry_before() -> None:
    read = read_docstring("X.\n\nArgs:\n    a: first\n    note: second", ["a"])
    assert read.parameters == {"a": "first note: second"}


def test_no_docstring_gives_nothing() -> None:
    assert read_docstring(None, ["a"]).description == ""
