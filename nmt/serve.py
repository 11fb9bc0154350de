"""python -m nmt.serve model=RUN_DIR [port=8000] [model=[A,B] names=[a,b]] [keys=FILE] …

A page and an API for other programs at http://127.0.0.1:8000, with LibreTranslate's requests and
answers (nmt/serving/README.md). Ctrl-C or SIGTERM ends it when all requests are answered.
"""

from nmt.configuration.command_line import command

run, main = command("serve", "nmt.pipeline.serve_command:serve")

if __name__ == "__main__":
    main()
