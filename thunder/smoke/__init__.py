"""`make smoke-aws`: the stack in a real account, for what no test on this machine can prove; then it is removed."""
