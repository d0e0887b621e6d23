"""The grading of an experiment as people see and steer it: how far each judge is, what it says, what it costs."""
