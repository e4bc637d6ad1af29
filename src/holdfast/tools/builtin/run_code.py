"""The built-in tool `run_code`: runs a Python program of the model in the sandbox and returns its output.

The program gets none of the agent's secrets, because the model that writes it could have it print them.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.errors import TellTheModel
from holdfast.ports.toolbox import Toolbox, ToolJob, ToolOutcome

# As in a notebook, the value of an expression on the last line is printed.
_RUNNER = """
def run_code(code):
    import ast

    tree = ast.parse(code, "<program>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    names = {"__name__": "__main__"}
    exec(compile(tree, "<program>", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "<program>", "eval"), names)
        if value is not None:
            print(repr(value))
"""


class RunCode:
    def __init__(self, processes: Toolbox) -> None:
        self._processes = processes

    async def run(self, job: ToolJob) -> ToolOutcome:
        language = job.arguments.get("language") or "python"
        if language != "python":
            raise TellTheModel(f"Only python programs can be run here, not {language}.")
        program = replace(
            job,
            source_code=_RUNNER,
            arguments={"code": str(job.arguments["code"])},
            environment={},
            agent_state=None,
            pip_requirements=(),
        )
        outcome = await self._processes.run(program)
        printed = "".join(outcome.stdout)
        if outcome.status == "error":
            message = outcome.content if isinstance(outcome.content, str) else ""
            return replace(outcome, content="\n".join(part for part in (message, printed) if part))
        return replace(outcome, content=printed or "The program printed nothing.")
