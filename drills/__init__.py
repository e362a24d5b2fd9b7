"""What breaks, on purpose: faults that must cost nothing but time, and situations an operator has to deal with.

Everything runs on the real stack, deployed by the real CDK to an embedded AWS of its own, whose functions reach
DynamoDB and Lambda through a fault proxy.
"""
