# ruff: noqa: T201, PTH123 -- a program of its own; pathlib would double the time to start
"""The part of wget that health checks use: `wget [--tries N] [-T S] [-q] [-O FILE|-] http://...`.

Exit codes as wget's: 0 done, 1 other, 2 wrong use, 3 file, 4 network, 8 the server answered with an error.
"""

import socket
import sys

CHUNK = 65536
REDIRECTS_MAX = 5


class Failure(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def parse(arguments: list[str]) -> tuple[dict[str, str], str]:
    """(tries, timeout, output, quiet; the URL). Raises Failure for what this program does not know."""
    valued = {"--tries": "tries", "-t": "tries", "--timeout": "timeout", "-T": "timeout",
              "--output-document": "output", "-O": "output"}  # fmt: skip
    switches = {"-q": "quiet", "--quiet": "quiet", "-nv": "quiet", "--no-verbose": "quiet",
                "--no-check-certificate": "insecure", "--spider": "spider"}  # fmt: skip
    options: dict[str, str] = {}
    urls = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if argument in switches:
            options[switches[argument]] = "yes"
        elif equals and name in valued:
            options[valued[name]] = value
        elif argument in valued:
            if not rest:
                raise Failure(2, f"wget: option requires an argument -- '{argument}'")
            options[valued[argument]] = rest.pop(0)
        elif argument[:2] in valued and not argument.startswith("--"):
            options[valued[argument[:2]]] = argument[2:]
        elif argument.startswith("-q") and argument[2:4] == "O-":
            options.update(quiet="yes", output="-")
        elif argument.startswith("-"):
            raise Failure(2, f"wget: this stand-in does not know '{argument}'; install wget on the host")
        else:
            urls.append(argument)
    if len(urls) != 1:
        raise Failure(2, "wget: exactly one URL is needed")
    return options, urls[0]


def split(url: str) -> tuple[str, int, str]:
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "http", url
    if scheme != "http":
        raise Failure(1, f"wget: this stand-in speaks only http://, not {scheme}://; install wget on the host")
    authority, slash, path = rest.partition("/")
    host, colon, port = authority.partition(":")
    if colon and not port.isdigit():
        raise Failure(2, f"wget: bad port number in {url}")
    return host, int(port or 80), slash + path if slash else "/"


def fetch(url: str, timeout: float) -> bytes:
    """The body of the answer. Raises Failure."""
    for _ in range(REDIRECTS_MAX):
        host, port, path = split(url)
        status, headers, body = exchange(host, port, path, timeout)
        if status in (301, 302, 303, 307, 308) and "location" in headers:
            target = headers["location"]
            url = target if "://" in target else f"http://{host}:{port}{target}"
            continue
        if status >= 400:
            raise Failure(8, f"wget: server returned error: {status}")
        return body
    raise Failure(8, f"wget: more than {REDIRECTS_MAX} redirections")


def exchange(host: str, port: int, path: str, timeout: float) -> tuple[int, dict[str, str], bytes]:
    request = (
        f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nUser-Agent: Wget\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(request.encode())
            answer = b"".join(iter(lambda: connection.recv(CHUNK), b""))
    except OSError as error:
        raise Failure(4, f"wget: {host}:{port}: {error}") from None
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) < 2 or not parts[0].startswith("HTTP/") or not parts[1].isdigit():
        raise Failure(4, f"wget: {host}:{port}: no HTTP answer")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if "chunked" in headers.get("transfer-encoding", ""):
        body = unchunk(body)
    return int(parts[1]), headers, body


def unchunk(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.split(b";")[0] or b"0", 16)
        if not length:
            break
        out, body = out + body[:length], body[length + 2 :]
    return out


def main(arguments: list[str]) -> int:
    try:
        options, url = parse(arguments)
        tries = max(1, int(options.get("tries", "1")))
        for attempt in range(tries):
            try:
                body = fetch(url, float(options.get("timeout", "60")))
                break
            except Failure as failure:
                if failure.code != 4 or attempt == tries - 1:
                    raise
        deliver(body, options, url)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    except ValueError as error:
        print(f"wget: {error}", file=sys.stderr)
        return 2
    return 0


def deliver(body: bytes, options: dict[str, str], url: str) -> None:
    if "spider" in options:
        return
    output = options.get("output") or split(url)[2].split("?")[0].rpartition("/")[2] or "index.html"
    try:
        if output == "-":
            sys.stdout.buffer.write(body)
            sys.stdout.buffer.flush()
        else:
            with open(output, "wb") as file:
                file.write(body)
    except OSError as error:
        raise Failure(3, f"wget: {output}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
