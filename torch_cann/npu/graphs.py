"""Graph capture: the names only. Kernels run at once, so there is nothing to capture yet."""

from torch_cann.npu._refused import refused_class, refused_function

__all__ = [
    "NPUGraph",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

_REASON = "graphs are not captured, run the model eagerly or with torch.compile(backend='aot_eager')"


def is_current_stream_capturing() -> bool:
    return False


NPUGraph = refused_class("NPUGraph", _REASON)
graph = refused_class("graph", _REASON)
graph_pool_handle = refused_function("graph_pool_handle", _REASON)
make_graphed_callables = refused_function("make_graphed_callables", _REASON)
graph_task_group_begin = refused_function("graph_task_group_begin", _REASON)
graph_task_group_end = refused_function("graph_task_group_end", _REASON)
graph_task_update_begin = refused_function("graph_task_update_begin", _REASON)
graph_task_update_end = refused_function("graph_task_update_end", _REASON)
