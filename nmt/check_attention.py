"""python -m nmt.check_attention FILE.py:NAME …

Tests custom attention functions, modules and decoders of any signature for properties of attention:
for example, weights sum to 1 and padding has weight 0. Each violated property is explained by a
small numerical example. The exit status is 1 if a property is violated. In Python, the module can
be called as a function: nmt.check_attention(function).text.
"""

from nmt.configuration.command_line import command

run, main = command(
    "check_attention",
    "nmt.analysis.attention_check:print_verdicts",
    python="nmt.analysis.attention_check:check_attention",
)

if __name__ == "__main__":
    main()
