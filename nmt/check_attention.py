"""python -m nmt.check_attention FILE.py:NAME …

Tests custom attention functions, modules and decoders of any signature for properties of attention:
weights sum to 1, padding has weight 0, and others. Each violated property is explained by a small
numerical example. The exit status is 1 if a property is violated.
"""

from nmt.configuration.command_line import command

run, main = command("check_attention", "nmt.analysis.attention_laws:print_verdicts")

if __name__ == "__main__":
    main()
