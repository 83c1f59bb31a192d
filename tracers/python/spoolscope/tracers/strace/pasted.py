"""Text that holds strace's output in another form: sums, web pages, mails."""

import re
from collections.abc import Sequence

from spoolscope.traces.errors import SpoolscopeError

_SUMS = re.compile(r"% time +seconds +usecs/call")
_RESULT = re.compile(r"\) += (?:-?\d|\?|0x)")
_ENTITY = re.compile(r"&(?:quot|lt|gt|amp|#0?39|#34);")
_QUOTED = re.compile(r"(?:> ?)+\s*(?:\[pid|\d+ |\w+\(|<\.\.\. )")
_ENCODED = re.compile(r"\) +=3D [-\d?]")
_UNESCAPE = "python3 -c 'import html, sys; print(html.unescape(sys.stdin.read()))'"


def refuse_other_forms(name: str, texts: Sequence[str], options: str) -> None:
    """Refuse lines whose form is not that in which strace wrote them.

    Args:
        name: The file's name.
        texts: Its first lines.
        options: The command that records what can be imported.

    Raises:
        SpoolscopeError: they are sums of calls, HTML, quoted or encoded as in mails.
    """
    entities = sum(1 for text in texts if _ENTITY.search(text) and '"' not in text)
    quoted = sum(1 for text in texts if _QUOTED.match(text))
    encoded = sum(1 for text in texts if _ENCODED.search(text))
    if 2 * entities > len(texts):
        why, remedy = "is HTML (&quot; instead of quotes)", f"make it text: {_UNESCAPE} < {name}"
    elif 2 * quoted > len(texts):
        why, remedy = "is quoted as in a mail", f"take the marks away: sed 's/^[> ]*//' {name}"
    elif 2 * encoded > len(texts):
        why, remedy = "is encoded as in a mail (=3D)", f"decode it: python3 -m quopri -d {name}"
    elif any(map(_SUMS.search, texts)) and not any(map(_RESULT.search, texts)):
        why, remedy = "has only sums of calls (strace -c), no calls", f"use '{options}'"
    else:
        return
    raise SpoolscopeError(f"{name} {why}", remedy=remedy)
