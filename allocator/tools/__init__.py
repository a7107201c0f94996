"""The command line: looks at pools from outside, keeps them up, and runs the service. Each command is imported when it
runs, so that `ls` needs neither NumPy nor rich.
"""
