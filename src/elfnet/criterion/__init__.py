"""Per-example losses, class weights, when they apply, how they are reduced, and the sum over exits."""
