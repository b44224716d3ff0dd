"""The node runtime: pods as isolated processes in one sandbox of Linux namespaces.

It plays the part of containerd, CNI, cluster DNS and kube-proxy.

It knows pods and containers, not Kubernetes: the kubelet tells it what to run (protocol.py), and may be killed and come back meanwhile.
"""
