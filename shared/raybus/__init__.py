"""The library that every service shares, in layers: domain, api, decide; bus, kube, ray, observe; runtime; cli. A layer knows none above it."""
