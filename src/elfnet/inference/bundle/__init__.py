"""The file of an exported model: members with hashes, the manifest, reading and writing."""
