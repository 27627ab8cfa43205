"""The command `elfnet models ls | show`."""

from collections.abc import Sequence

from elfnet.cli.arguments import Parser
from elfnet.cli.output import console, print_json
from elfnet.pretrained.catalogue import ShippedNetwork, shipped_networks
from elfnet.registry import unknown_name


def parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "models",
        "List the trained networks that can be named in place of a file, or show what is known about one.",
        usage="ls | show NAME [--json]",
        example="elfnet models show clothing",
    )
    parser.add_argument("what", choices=("ls", "show"), help="ls: list the networks; show: print the facts of one")
    parser.add_argument("name", nargs="?", help="for show: name of a network")
    parser.add_json_flag()
    return parser


def run(words: Sequence[str]) -> int:
    """Run the command with these arguments; return the exit code."""
    reader = parser()
    args = reader.parse_strictly(words)
    networks = shipped_networks()
    if args.what == "ls":
        reader.refuse_name(args.name)
        return _list(networks, as_json=args.json)
    if args.name is None:
        reader.error("name the network to show; elfnet models ls lists them")
    if args.name not in networks:
        raise unknown_name("network", args.name, list(networks))
    network = networks[args.name]
    facts = {**network.facts.model_dump(mode="json"), "file": str(network.verified_path())}
    if network.samples is not None:
        facts["samples"] = str(network.samples)
    if args.json:
        print_json(facts)
        return 0
    for name, value in facts.items():
        shown = ", ".join(f"{key} {100 * share:.1f} %" for key, share in value.items()) if name == "accuracy" else value
        console().print(f"{name.replace('_', ' '):<12} {shown}", markup=False, soft_wrap=True)
    return 0


def _list(networks: dict[str, ShippedNetwork], *, as_json: bool) -> int:
    summaries = {name: network.facts.summary for name, network in networks.items()}
    if as_json:
        print_json(summaries)
        return 0
    width = max(map(len, summaries), default=0)
    for name, summary in summaries.items():
        console().print(f"{name:<{width}}  {summary}", markup=False, soft_wrap=True)
    return 0
