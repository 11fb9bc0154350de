"""python -m nmt.check_attention FILE.py:NAME …

Checks attention functions, modules and decoders of any signature against the laws of attention:
weights are a distribution, padding gets no weight … Each broken law is explained by a tiny example
with numbers. The exit status is 1 if a law is broken.
"""

from nmt.configuration.command_line import command

run, main = command("check_attention", "nmt.analysis.attention_laws:print_verdicts")

if __name__ == "__main__":
    main()
