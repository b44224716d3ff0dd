from __future__ import annotations

import sys

from raybus_localkube.server.process import main

sys.exit(main())
