"""python -m nmt.serve model=RUN_DIR [port=8000] [keys=FILE] …
python -m nmt.serve model=[A,B] names=[a,b] …             serves several models

Starts an HTTP server at http://127.0.0.1:8000 with a web page and an API that is compatible with
LibreTranslate (nmt/serving/README.md). After Ctrl-C or SIGTERM, the server answers the pending
requests and exits.
"""

from nmt.configuration.command_line import command

run, main = command("serve", "nmt.pipeline.serve_command:serve")

if __name__ == "__main__":
    main()
