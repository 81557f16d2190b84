"""The operator's page in a frame of a phone's width, in a headless Chromium; and what it asks for can be made to wait.

    page = framed_page.show("http://127.0.0.1:14980", width=360, folder=FOLDER, before=lambda path, times: …)

`before` is called before each question goes to the server, with how often it was asked before: the page's clock stands still
while it waits for an answer. What comes back is `html`, the page as it was in the end, and its `inner` and `scroll` width.
"""
import html
import http.server
import json
import re
import subprocess
import threading
import types
import urllib.request

# Chromium's own window has 500 pixels at least. What is in a frame of the same origin can be read.
FRAME = """<!doctype html><link rel="icon" href="data:,"><body><iframe src="/page" style="width:{width}px;height:3000px;border:0"></iframe><script>
setInterval(() => {{
  const frame = document.querySelector("iframe"), page = frame.contentDocument;
  document.body.dataset.seen = JSON.stringify({{inner: frame.contentWindow.innerWidth, scroll: page.documentElement.scrollWidth,
    html: page.documentElement.outerHTML}});
}}, 500);
</script></body>"""


def show(url, width, folder, before=lambda path, times: None, virtual_ms=12_000):
    asked = {}

    class Between(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/":
                return self.answer(FRAME.format(width=width).encode(), "text/html")
            path = "/" if self.path == "/page" else self.path
            asked[path] = asked.get(path, 0) + 1
            before(path, asked[path] - 1)
            with urllib.request.urlopen(url + path, timeout=10) as answer:
                self.answer(answer.read(), answer.headers["Content-Type"])

        def answer(self, content, kind):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shown = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/chromium",
             f"--virtual-time-budget={virtual_ms}", "--dump-dom", f"http://127.0.0.1:{server.server_port}/"],
            check=True, text=True, capture_output=True, timeout=120).stdout
        server.shutdown()
    seen = re.search(r'data-seen="([^"]*)"', shown)
    return types.SimpleNamespace(**json.loads(html.unescape(seen.group(1))))
