"""Common parts of all pages: no network access, responsive, with dark mode and keyboard navigation."""

STYLE = """
.nmt { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
  --ink: 31,97,161; --line: #e4e4e4; --soft: #5f5f5f; }
.nmt h1 { font-size: 1.2rem; font-weight: 600; }
.nmt .note, .nmt .others, .nmt figcaption { color: var(--soft); font-size: .9rem; }
.nmt section { border-top: 1px solid var(--line); padding: .8rem 0; }
.nmt .maps { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-end; }
.nmt figure { margin: 0; max-width: 100%; overflow-x: auto; }
.nmt figcaption { padding-top: .4rem; text-align: right; }
.nmt table { border-collapse: collapse; }
.nmt th { font-weight: 400; padding: .1rem .4rem; white-space: pre; background: none; color: inherit; text-align: right; }
.nmt figure thead th { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; }
.nmt figure td { width: 1.5rem; min-width: 1.5rem; height: 1.5rem; padding: 0; border: 1px solid var(--line); }
.nmt figure td, .nmt mark { position: relative; background: rgba(var(--ink), var(--w)); }
.nmt mark { color: inherit; border-radius: .2rem; padding: .1rem .15rem; line-height: 1.9; }
.nmt :is(td, mark, .look):is(:hover, :focus) { outline: 2px solid #c0504d; outline-offset: -1px; }
.nmt :is(td, mark, .look):is(:hover, :focus)::after {
  content: attr(data-value); position: absolute; left: 0; top: 110%; z-index: 2; white-space: pre; padding: 0 .4rem;
  background: #222; color: #fff; border-radius: .2rem; font-size: .85rem; line-height: 1.6; }
.nmt .looks { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(5rem, 9rem); gap: .6rem;
  overflow-x: auto; padding: 2px 2px 1.8rem; }
@media (max-width: 45rem) {
  .nmt .looks { grid-auto-flow: row; grid-template-columns: repeat(auto-fill, minmax(6rem, 1fr)); overflow: visible; }
}
.nmt .look { position: relative; overflow: visible; }
.nmt .look div { aspect-ratio: var(--shape); image-rendering: auto; background-size: 100% 100%;
  border: 1px solid var(--line); border-radius: .3rem; }
.nmt .look figcaption { text-align: center; color: inherit; padding-top: .15rem; }
.nmt .legend { display: inline-block; width: 8rem; height: .8rem; border: 1px solid var(--line); vertical-align: middle;
  background: linear-gradient(to right, rgba(var(--ink), 0), rgba(var(--ink), 1)); }
.nmt h2 { font-size: 1.05rem; font-weight: 600; margin: .4rem 0; }
.nmt .wide { overflow-x: auto; }
.nmt .note { overflow-wrap: anywhere; max-width: 60rem; }
.nmt .beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(32rem, 100%), 1fr)); column-gap: 3rem; }
.nmt .beside > * { min-width: 0; }
.nmt .data th, .nmt .data td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; background: none; }
.nmt .data thead th { font-weight: 600;
  white-space: normal; overflow-wrap: break-word; max-width: 10rem;
  border-bottom: 2px solid var(--soft); vertical-align: bottom; }
.nmt .data th[scope=row] { white-space: normal; max-width: 22rem; }
.nmt .data th[scope=row], .nmt .data .key { text-align: left; }
.nmt .data .strong { font-weight: 650; }
.nmt h3 { font-size: .95rem; font-weight: 600; margin: 0 0 .3rem; }
.nmt .texts td, .nmt .texts th { padding: .15rem .6rem .15rem 0; vertical-align: top; text-align: left;
  white-space: normal; }
.nmt .texts th { color: var(--soft); min-width: 6rem; max-width: 16rem; overflow-wrap: anywhere; }
.nmt mark.other { background: rgba(var(--ink), .22); }
.nmt summary { cursor: pointer; color: var(--soft); padding: .3rem 0; }
.nmt .chart svg { display: block; width: 100%; height: auto; }
.nmt .guess { font-weight: 600; }
.nmt .wrong { color: #a5321f; }
@media (prefers-color-scheme: dark) {
  .nmt { color: #e6e6e6; background: #16191d; --ink: 108,174,236; --line: #363b42; --soft: #a9b0b8; }
  .nmt .wrong { color: #ff9a86; }
}
"""


def page(title: str, note: str, sections: str) -> bytes:
    """A whole page: `note` and `sections` are HTML."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title><style>{STYLE}
body {{ margin: 0 auto; max-width: 100rem; padding: 1rem; }}
</style></head><body class="nmt"><h1>{title}</h1>
<p class="note">{note}</p>
{sections}
</body></html>
""".encode()


def fragment(section: str) -> str:
    """A part of a page, for a notebook."""
    return f'<style>{STYLE}</style><div class="nmt">{section}</div>'
