# Included by _core.pyx: keyword arguments become the parameter struct of an op's row.


cdef int64_t as_i64(value, str op, bytes name) except? -1:
    number = as_int(f"{op}: {name.decode()}", value)
    try:
        return number
    except OverflowError:
        raise ParameterError(f"{op}: {name.decode()}: the integer passes 64 bits") from None


cdef int pack_axes(const pyg_op_row *row, const pyg_param *p, value, char *field) except -1:
    """A list in numpy order becomes int64[4] in ne order; a permutation's values turn too."""
    cdef int64_t axes[4]
    cdef int64_t axis
    op = row.name.decode()
    try:
        value = tuple(islice(value, PYG_MAX_DIMS + 1))  # it may be endless
    except TypeError as e:
        raise ParameterError(f"{op}: {p.name.decode()}: {e}") from None
    cdef Py_ssize_t n = len(value)
    if n > PYG_MAX_DIMS:
        raise ShapeError(f"{op}: {p.name.decode()}: at most {PYG_MAX_DIMS} axes")
    for i in range(PYG_MAX_DIMS):
        if p.kind == PYG_KIND_AXES:
            axis = as_i64(value[n - 1 - i], op, p.name) if i < n else n
            axes[i] = n - 1 - axis if 0 <= axis < n else -1
        else:
            axes[i] = as_i64(value[n - 1 - i], op, p.name) if i < n else <int64_t>p.default
    memcpy(field, axes, sizeof(axes))
    return 0


cdef int pack_param(const pyg_op_row *row, const pyg_param *p, value, char *field) except -1:
    cdef float f
    cdef int64_t n
    op = row.name.decode()
    if p.kind == PYG_KIND_PER_AXIS or p.kind == PYG_KIND_AXES:
        return pack_axes(row, p, value, field)
    if p.kind == PYG_KIND_F32:
        try:
            f = value
        except (TypeError, ValueError, OverflowError) as e:
            raise ParameterError(f"{op}: {p.name.decode()}: {e}") from None
        memcpy(field, &f, sizeof(f))
        return 0
    if p.kind == PYG_KIND_ENUM:
        choices = p.choices.decode().split("|")
        if not isinstance(value, str) or value not in choices:
            raise ParameterError(
                f"{op}: {p.name.decode()} must be one of {', '.join(choices)}, got {shown(value)}")
        n = choices.index(value)
    elif p.kind == PYG_KIND_BOOL:
        n = as_bool(f"{op}: {p.name.decode()}", value)
    else:
        n = as_i64(value, op, p.name)
    memcpy(field, &n, sizeof(n))
    return 0


cdef int pack_params(const pyg_op_row *row, dict params, char *out) except -1:
    memset(out, 0, PYG_MAX_PARAM_BYTES)
    cdef int used = 0
    for i in range(row.n_params):
        p = &row.params[i]
        name = p.name.decode()
        if name in params:
            pack_param(row, p, params[name], out + p.offset)
            used += 1
        elif p.kind == PYG_KIND_PER_AXIS:
            pack_axes(row, p, (), out + p.offset)
        elif isnan(p.default):
            raise ParameterError(f"{row.name.decode()}: the parameter {name} is missing")
        elif p.kind == PYG_KIND_ENUM:
            pack_param(row, p, p.choices.decode().split("|")[<int>p.default], out + p.offset)
        else:
            pack_param(row, p, p.default if p.kind == PYG_KIND_F32 else <int64_t>p.default,
                       out + p.offset)
    if used != len(params):
        known = {row.params[i].name.decode() for i in range(row.n_params)}
        extra = ", ".join(sorted(set(params) - known))
        raise ParameterError(f"{row.name.decode()}: unknown parameter {extra}")
    return 0
