"""The command `elfnet completion bash | zsh | fish`."""

import sys
from collections.abc import Sequence
from importlib import import_module

from elfnet.cli.arguments import Parser

SHELLS = ("bash", "zsh", "fish")

BASH = """# elfnet completion bash > ~/.local/share/bash-completion/completions/elfnet
_elfnet() {{
    local current=${{COMP_WORDS[COMP_CWORD]}}
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{verbs}" -- "$current"))
        return
    fi
    local flags=""
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    if [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$current"))
    else
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}}
complete -o filenames -F _elfnet elfnet
"""

ZSH = """#compdef elfnet
# elfnet completion zsh > ~/.zfunc/_elfnet, with fpath+=~/.zfunc before compinit in ~/.zshrc
autoload -U +X bashcompinit && bashcompinit
"""


def parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "completion",
        "Print the completion script of a shell: verbs, and the flags of each verb.",
        usage="bash | zsh | fish",
        example="elfnet completion bash > ~/.local/share/bash-completion/completions/elfnet",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell to print the script for")
    return parser


def run(words: Sequence[str]) -> int:
    """Run the command with these arguments; return the exit code."""
    args = parser().parse_strictly(words)
    sys.stdout.write(script(args.shell))
    return 0


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    from elfnet.cli.main import VERBS

    flags = {verb: flags_of(verb) for verb in VERBS}
    if shell == "fish":
        lines = ["# elfnet completion fish | source; or save it in ~/.config/fish/completions"]
        for verb, what in VERBS.items():
            text = what.replace("'", "\\'")
            lines.append(f"complete -c elfnet -n __fish_use_subcommand -f -a {verb} -d '{text}'")
            lines += [
                f"complete -c elfnet -n '__fish_seen_subcommand_from {verb}' -l {flag.removeprefix('--')}"
                for flag in flags[verb]
                if flag.startswith("--")
            ]
        return "\n".join(lines) + "\n"
    cases = "\n".join(f'        {verb}) flags="{" ".join(own)}" ;;' for verb, own in flags.items())
    text = BASH.format(verbs=" ".join(VERBS), cases=cases)
    return ZSH + text.split("\n", 1)[1] if shell == "zsh" else text


def flags_of(verb: str) -> list[str]:
    """Return all flags of a verb, sorted."""
    reader: Parser = import_module(f"elfnet.cli.{verb}").parser()
    return sorted(option for action in reader._actions for option in action.option_strings)
