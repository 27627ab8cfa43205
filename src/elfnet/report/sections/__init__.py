"""The parts of the page: each module builds the typed values that a template shows. No markup is written here."""
