"""Controllers: hold a target of cost or latency by moving along the family, without labels."""
