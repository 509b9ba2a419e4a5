"""The smallest pass-through on each stack that was considered: `python -m bench.proxy.stacks STACK PORT UPSTREAM`."""

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from typing import Any

from gatekeeper.core.hidden_keys import Address
from gatekeeper.live.http.upstream import Upstream, origin_of


def aiohttp_stack(port: int, upstream: str) -> Any:
    from aiohttp import ClientSession, TCPConnector, web  # noqa: PLC0415

    session: Any = None

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with session.post(
            upstream + request.path, data=body, headers={"Content-Type": "application/json"}
        ) as got:
            out = web.StreamResponse(status=got.status, headers={"Content-Type": got.headers["Content-Type"]})
            await out.prepare(request)
            async for piece in got.content.iter_any():
                await out.write(piece)
            await out.write_eof()
            return out

    async def run() -> None:
        nonlocal session
        session = ClientSession(connector=TCPConnector(limit=0), auto_decompress=False)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    return run()


def httptools_stack(port: int, upstream: str) -> Any:
    """Run aiohttp's server with the proxy's own connections to the servers."""
    from aiohttp import web  # noqa: PLC0415

    origin, connections = origin_of(Address(upstream)), Upstream()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        got = await connections.request(origin, "POST", request.path, {}, await request.read())
        out = web.StreamResponse(status=got.status, headers={"Content-Type": got.headers["Content-Type"]})
        await out.prepare(request)
        while piece := await got.read():
            await out.write(piece)
        connections.release(got)
        await out.write_eof()
        return out

    async def run() -> None:
        runner = web.ServerRunner(web.Server(handle, handler_cancellation=True, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    return run()


def starlette_stack(port: int, upstream: str, client: Any) -> Any:
    import uvicorn  # noqa: PLC0415
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import StreamingResponse  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    async def handle(request: Request) -> StreamingResponse:
        body = await request.body()
        sent = client.build_request("POST", upstream + request.url.path, content=body)
        got = await client.send(sent, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in got.aiter_raw():
                yield piece
            await got.aclose()

        return StreamingResponse(pieces(), got.status_code, media_type=got.headers["content-type"])

    app = Starlette(routes=[Route("/{path:path}", handle, methods=["GET", "POST"])])
    config = uvicorn.Config(app, "127.0.0.1", port, log_level="error", access_log=False, http="httptools")
    return uvicorn.Server(config).serve()


OWN = {"aiohttp": aiohttp_stack, "httptools": httptools_stack}


def main(stack: str, port: int, upstream: str) -> None:
    """Run one stack until it is killed; `-uvloop` at its name's end chooses that loop."""
    import uvloop  # noqa: PLC0415

    name, fast = stack.removesuffix("-uvloop"), stack.endswith("-uvloop")

    async def run() -> None:
        if name in OWN:
            await OWN[name](port, upstream)
            return
        library = importlib.import_module(name)  # httpx or httpx2
        limits = library.Limits(max_connections=None, max_keepalive_connections=256)
        await starlette_stack(port, upstream, library.AsyncClient(limits=limits, timeout=None))

    if fast:
        uvloop.run(run())
    else:
        asyncio.run(run())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
