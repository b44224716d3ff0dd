"""What the operator's settings mean for decisions. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from raybus.domain.names import DEFAULT_CLUSTER_DOMAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Times in seconds. `gates` are the feature gates that are on."""

    cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
    gates: frozenset[str] = frozenset()
    login_shell: bool = False  # the submitter's bash reads the profile
    head_cluster_ip: bool = False  # head Services are not headless
    transition_grace_s: float = 300.0  # for a submitter that does not end after the job
    status_check_timeout_s: float = 300.0  # for a dashboard that does not answer
    unready_head_timeout_s: float = (
        40.0  # the same where the head Pod is not Ready: a hung node is told within a minute
    )
    delete_job_with_cluster: bool = False  # shutdownAfterJobFinishes takes the RayJob itself
    deletion_limit_s: float = 60.0  # after which a RayJob that is being deleted is let go, stopped or not
    poll_s: float = 3.0
    quick_poll_s: float = 1.0
    urgent_poll_s: float = 0.5
