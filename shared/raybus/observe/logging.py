"""Structured logs: JSON lines for machines, coloured lines for people. One call to `configure` per process.

Fields that mean the same everywhere: service, replica, controller, kind, namespace, name, uid, trigger, action, reason.
Messages say what is about to be done or what has been learned; they never hold a secret (see `redact`).
"""

from __future__ import annotations

import logging
import sys
from typing import Any, BinaryIO, Literal, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

LogFormat = Literal["json", "console"]
LEVELS = ("debug", "info", "warning", "error")
HIDDEN = "[hidden]"
_SECRET_WORDS = ("password", "token", "secret", "authorization", "credential")

Logger = FilteringBoundLogger


def get_logger(**fields: Any) -> Logger:
    """A logger that adds `fields` to each line. Take it when an object is built, after `configure`."""
    return cast("Logger", structlog.get_logger().bind(**fields))


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Hide values of fields whose names say that they are secret: the last net, not a licence to log them."""
    for key in event:
        if any(word in key.lower() for word in _SECRET_WORDS):
            event[key] = HIDDEN
    return event


def _json(event: Any, **_options: Any) -> str:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(
    *,
    service: str,
    replica: str = "",
    log_format: LogFormat = "json",
    level: str = "info",
    stream: BinaryIO | None = None,
) -> None:
    """Send all logs of this process to `stream` (standard error if None), libraries' warnings included."""
    out = stream or sys.stderr.buffer
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        redact,
    ]
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(service=service, **({"replica": replica} if replica else {}))
    structlog.configure(
        processors=[*shared, _rendering(log_format, out), _to_bytes],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.BytesLoggerFactory(file=out),
    )
    _configure_libraries(shared, log_format, out)


def _rendering(log_format: LogFormat, out: BinaryIO) -> Processor:
    if log_format == "json":
        return structlog.processors.JSONRenderer(serializer=_json)
    return structlog.dev.ConsoleRenderer(colors=out.isatty(), timestamp_key="time")


def _to_bytes(_logger: WrappedLogger, _method: str, line: Any) -> bytes:
    return str(line).encode(errors="replace")


class _BytesHandler(logging.StreamHandler[Any]):
    """Writes lines of the standard library's loggers to a binary stream."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.stream.write(self.format(record).encode(errors="replace") + b"\n")
            self.flush()
        except Exception:  # noqa: BLE001 - a logging handler must never raise into the code that logs
            self.handleError(record)


def _is_no_late_answer(record: logging.LogRecord) -> bool:
    """A connection with TLS that ends while something is still read from it: uvloop calls its own late answer a fatal error.

    Whoever had the connection is told of its end in the usual way. The same error from anywhere else is a bug, and shown.
    """
    error = record.exc_info[1] if record.exc_info else None
    late = isinstance(error, RuntimeError) and str(error).endswith("the handler is closed")
    return not (record.name == "asyncio" and late and record.getMessage().startswith("Fatal error on SSL protocol"))


def _configure_libraries(shared: list[Processor], log_format: LogFormat, out: BinaryIO) -> None:
    handler = _BytesHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _rendering(log_format, out)],
        )
    )
    handler.addFilter(_is_no_late_answer)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
