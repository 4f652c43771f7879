import sys

from npu_plan import main

sys.exit(main())
