"""Job controller: batch/v1 Jobs become pods, and what became of the pods becomes the Job's status.

What may live here: facts about pods, the pure decision of one pass, the pods it makes, and the controller that keeps the index.
"""
