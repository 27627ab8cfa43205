"""One file or folder to run a trained network from: what it holds, writing it, and reading it without trust."""
