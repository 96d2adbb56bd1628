"""Mutants that no test can kill, each with the reason why.

The key names the file, the function, the line and the line as it is changed.
"""

from __future__ import annotations

__all__ = ["EQUIVALENT"]

_UNUSED = "the rule's step is given the scalar, and does not use it"
_THREADS = "how many threads there are, and who steps what, changes no bits"
_RETURNED = "only a negative number, for an exception, is looked at"
_WAY = "an estimate of work, which decides among ways to the same result"

EQUIVALENT: dict[str, str] = {
    "tfopt/autodiff/backward.pyx::kept: source, where = g, mask -> source, where = mask, mask": (
        "the way of other dtypes gives the same"
    ),
    "tfopt/autodiff/tracing/codegen.py::_Writer._argument: if node is not None "
    "and type(x) in (int, float) and _takes_arrays(node, x): -> if node is None"
    " and type(x) in (int, float) and _takes_arrays(node, x):": (
        "a number becomes an array at each call instead of once"
    ),
    "tfopt/autodiff/tracing/liveness.py::Liveness.__init__: self.copied = { eng"
    "ine.key(node.outs[0]) for k, node in enumerate(nodes) if node.op is READ a"
    "nd any( k < e <= self._last_of_root.get(engine.key(node.outs[0]), -1) for "
    "e in effects ) } -> self.copied = { engine.key(node.outs[0]) for k, node i"
    "n enumerate(nodes) if node.op is READ and any( k < e <= self._last_of_root"
    ".get(engine.key(node.outs[0]), -0) for e in effects ) }": (
        "an effect after a read is not the first node"
    ),
    "tfopt/autodiff/vjps/elementwise.py::power_exponent: logarithm = np.where(u"
    "sable, np.log(np.where(usable, a, 1)), 0) -> logarithm = np.where(usable, "
    "np.log(np.where(usable, a, 2)), 0)": ("what it stands for is not used"),
    "tfopt/autodiff/vjps/indexing.py::take_along_axis: shape = np.broadcast_sha"
    "pes( *(tuple(1 if k == axis else n for k, n in enumerate(x.shape)) for x i"
    "n (a, indices)) ) -> shape = np.broadcast_shapes( *(tuple(0 if k == axis e"
    "lse n for k, n in enumerate(x.shape)) for x in (a, indices)) )": (
        "how long the axis is says the shape of indices alone"
    ),
    "tfopt/autodiff/vjps/reductions.py::partition: a, axis = (np.ravel(a), -1) "
    "if axis is None else (a, axis) -> a, axis = (np.ravel(a), -0) if axis is N"
    "one else (a, axis)": ("there is one axis"),
    "tfopt/checkpoints/files.py::_length: last = len(framing.closing([0] * len("
    "entries))) -> last = len(framing.closing([1] * len(entries)))": ("how long the directory is"),
    'tfopt/checkpoints/npz.py::read_text: start = len(_Member(b"header.npy", b"'
    '", 0).local()) -> start = len(_Member(b"header.npy", b"", 1).local())': (
        "how long the member's local header is"
    ),
    "tfopt/checkpoints/safetensors.py::read_text: if length > min(size - 8, MOS"
    "T_TEXT): -> if length > min(size - 9, MOST_TEXT):": (
        "no file that is sound ends with its header"
    ),
    "tfopt/checkpoints/writing.py::_set_direct: fcntl.fcntl(descriptor, fcntl.F"
    "_SETFL, flags | _DIRECT if on else flags & ~_DIRECT) -> fcntl.fcntl(descri"
    "ptor, fcntl.F_SETFL, flags & _DIRECT if on else flags & ~_DIRECT)": (
        "files are written through the system's cache"
    ),
    "tfopt/io/streams.py::open_binary: head = buffered.peek(6) -> head = buffered.peek(7)": (
        "more is buffered than is looked at"
    ),
    "tfopt/kernels/arrays/aliasing.pyx::check_itself: if cnp.PyArray_SIZE(a) =="
    " 0 or cnp.PyArray_IS_C_CONTIGUOUS(a) \\ or cnp.PyArray_IS_F_CONTIGUOUS(a): "
    "-> if cnp.PyArray_SIZE(a) == 0 and cnp.PyArray_IS_C_CONTIGUOUS(a) \\ or cnp"
    ".PyArray_IS_F_CONTIGUOUS(a):": (
        "arrays in one piece go the way of others, which finds nothing"
    ),
    "tfopt/kernels/arrays/csr.pyx::_any_falls: falls |= indptr[i + 1] < indptr["
    "i] -> falls |= indptr[i + 1] >= indptr[i]": (
        "rows that all end before they begin end below 0, which is refused"
    ),
    "tfopt/kernels/arrays/layout.pyx::_reach: total += strides[k][axis] if stri"
    "des[k][axis] >= 0 else -strides[k][axis] -> total += strides[k][axis] if s"
    "trides[k][axis] > 0 else -strides[k][axis]": ("a stride of 0 has no sign"),
    "tfopt/kernels/platform/runtime.pyx::gather_team: if t.size > 1: -> if t.size <= 1:": (
        _THREADS
    ),
    "tfopt/kernels/platform/runtime.pyx::gather_team: t.size = 1 -> pass": (_THREADS),
    "tfopt/kernels/platform/runtime.pyx::run_team: if t.size == 1: -> if t.size == 2:": (_THREADS),
    "tfopt/kernels/update/clip.pyx::_scale_each: product = product if second[i]"
    " == 1 else product * second[i] -> product = product if second[i] == 2 else"
    " product * second[i]": ("the product with 1 is the product, which has been flushed"),
    "tfopt/kernels/reduce/norms.pyx::_fill: b.sources = <source *>calloc(b.n_so"
    "urces + 1, sizeof(source)) -> b.sources = <source *>calloc(b.n_sources + 2"
    ", sizeof(source))": ("more memory than is used"),
    "tfopt/kernels/reduce/norms.pyx::_fill: b.sources = <source *>calloc(b.n_so"
    "urces + 1, sizeof(source)) -> b.sources = <source *>calloc(b.n_sources , s"
    "izeof(source))": ("calloc of nothing returns memory, too, in glibc"),
    "tfopt/kernels/reduce/norms.pyx::_scaling: return False -> return True": (
        "a norm that is 0 or infinite is found twice"
    ),
    "tfopt/kernels/reduce/norms.pyx::slice_norms: if t.size == 1: -> if t.size == 2:": (_THREADS),
    "tfopt/kernels/linear/interior_point.pyx::_run: end_share(&t) -> pass": (_THREADS),
    "tfopt/kernels/linear/loss_formulas.pxd::logistic_root: d = -h * h1 / fmax(h1"
    " * h1 - h * v * (r - p) / 2, h1 * h1 / 2) -> d = h * h1 / fmax(h1 * h1 - h"
    " * v * (r - p) / 2, h1 * h1 / 2)": (
        "steps that leave the bracket are replaced by bisections, which find the same root"
    ),
    "tfopt/kernels/linear/visits.pxd::visit: cdef const index *j = &indices[0] if"
    " indices.shape[0] else NULL -> cdef const index *j = &indptr[0] if indices"
    ".shape[0] else NULL": ("what is prefetched"),
    "tfopt/kernels/text/decimals.pxd::scan_number: if cut and x != scaled(manti"
    "ssa + 1, power, fives): -> if cut and x != scaled(mantissa + 2, power, fiv"
    "es):": ("where it is not certain, the digits are read exactly"),
    "tfopt/kernels/text/libsvm.pyx::_make_fives: if power < 0: -> if power < 1:": (
        "the upper 64 bits of a product with 1 are 0"
    ),
    "tfopt/kernels/text/libsvm.pyx::parse: cdef Py_ssize_t size = text.shape[0]"
    ", rows = 0, entries = 0, n_lines = 0, n_faults = 0 -> cdef Py_ssize_t size"
    " = text.shape[0], rows = 0, entries = 1, n_lines = 0, n_faults = 0": (
        "gaps between what pieces of text hold are closed up"
    ),
    "tfopt/kernels/update/checks.pyx::Call.__cinit__: self.one.axes = NULL -> pass": (
        "memory of a new object is zeros"
    ),
    "tfopt/kernels/update/checks.pyx::_check_hyper: if limit == 1: -> if limit == 0:": (
        "no rule with such a limit has a flag"
    ),
    "tfopt/kernels/update/deferred_rows.pyx::_catch_up_row: break -> continue": (
        "steps that move nothing are taken one by one"
    ),
    "tfopt/kernels/update/adjustments.pyx::_run: axes.n_written = n_operands - 1 "
    "-> axes.n_written = n_operands": (
        "contiguous operands are not buffered, so none is written back"
    ),
    "tfopt/kernels/update/multi_tensor.pyx::_separate: open_spans[kind] = _stil"
    "l_open(open_spans[kind], begin) -> pass": ("spans that cannot overlap are compared, too"),
    "tfopt/kernels/update/repetition.pyx::Repetition.call_with: bit *= 2 -> pass": (
        "no rule has two flags"
    ),
    "tfopt/kernels/update/row_buckets.pyx::worth_dividing: return (w.scatter !="
    " NULL and FEWEST <= w.n_indices < NOWHERE and w.n_rows < NOWHERE and w.n_r"
    "ows * w.itemsize * (w.n_operands - 1) > LARGE and (w.n_operands > 2 or w.s"
    "umming != NULL) and _is_scattered(w)) -> return (w.scatter != NULL and FEW"
    "EST <= w.n_indices < NOWHERE and w.n_rows < NOWHERE and w.n_rows * w.items"
    "ize * (w.n_operands - 1) >= LARGE and (w.n_operands > 2 or w.summing != NU"
    "LL) and _is_scattered(w))": (_THREADS),
    "tfopt/kernels/update/sparse_checks.pyx::_sum_on_the_way: if call.one.axes "
    "!= NULL or not 0 < call.w.inner <= BLOCK or not 0 < n < 0xFFFFFFFF: -> if "
    "call.one.axes != NULL or not 0 < call.w.inner <= BLOCK or not 1 < n < 0xFF"
    "FFFFFF:": ("a single row is summed before its step instead of in it"),
    "tfopt/kernels/update/sparse_checks.pyx::_checked: call.w.half = NULL -> pass": (
        "the baseline has no steps of 16 bits"
    ),
    "tfopt/kernels/update/step_table.pyx::Kernel.__cinit__: if len(rule.operand"
    "s) > MAX_OPERANDS or len(rule.hypers) > MAX_HYPERS \\ or len(rule.scalars) "
    "+ len(rule.further) > MAX_SCALARS \\ or len(rule.sums) > MAX_SUMS: -> if le"
    "n(rule.operands) > MAX_OPERANDS or len(rule.hypers) >= MAX_HYPERS \\ or len"
    "(rule.scalars) + len(rule.further) > MAX_SCALARS \\ or len(rule.sums) > MAX"
    "_SUMS:": ("no rule has as many"),
    "tfopt/kernels/update/steps_baseline.pyx::dense_ftrl_v2_2: cdef real expone"
    "nt = h[3] -> cdef real exponent = h[2]": (_UNUSED),
    "tfopt/kernels/update/steps_baseline.pyx::dense_rms_prop_0: cdef number rho"
    " = h[3] -> cdef number rho = h[4]": (_UNUSED),
    "tfopt/kernels/update/steps_baseline.pyx::reduce_lamb_0: into[0] = <real>(l"
    "r * (rules.root(weights) / rules.root(updates)) if adapts & (weights > <do"
    "uble><double>0) & (updates > <double><double>0) else lr) -> into[0] = <rea"
    "l>(lr / (rules.root(weights) / rules.root(updates)) if adapts & (weights >"
    " <double><double>0) & (updates > <double><double>0) else lr)": (
        "in this variant nothing adapts"
    ),
    "tfopt/kernels/update/steps_baseline.pyx::rows_adagrad_da_0: cdef real thre"
    "shold = h[6] -> cdef real threshold = h[5]": ("without shrinking there is no threshold"),
    "tfopt/kernels/update/steps_baseline.pyx::scalars_ademamix_0: h[2] = root_s"
    "cale -> h[3] = root_scale": (_UNUSED),
    "tfopt/kernels/update/whole_rows.pyx::set_rows: cdef bint are_runs = True, "
    "merges -> cdef bint are_runs = False, merges": ("runs are stepped as rows with strides"),
    "tfopt/kernels/update/whole_tensors.pyx::run_tensors: end_share(&sums) -> pass": (_THREADS),
    "tfopt/linear_model/_fit/ascent.py::solve_all: together = n_problems > 1"
    " and not alone -> together = n_problems > 2 and not alone": (
        "there is one problem, or one for each of three classes and more"
    ),
    "tfopt/linear_model/_fit/multinomial.py::with_best_intercepts: H += sums"
    ".sum() / problem.n_classes**2 -> H += sums.sum() / problem.n_classes**3": (
        "the sum of the residuals is 0, so any positive number there gives the same step"
    ),
    "tfopt/linear_model/_fit/work.py::descent_work: matrix += 3 * SCATTERED "
    "* data.size -> matrix += 3 / SCATTERED * data.size": (_WAY),
    "tfopt/linear_model/_fit/work.py::hessian_work: factorization = FACTOR *"
    " float(problem.n_weights) ** 3 / 6 -> factorization = FACTOR * float(pro"
    "blem.n_weights) * 3 / 6": (_WAY),
    "tfopt/linear_model/_fit/work.py::product_work: return ROW * _n_rows(obj"
    "ective) + SCATTERED * data.size + DENSE * dense.size -> return ROW * _n_ro"
    "ws(objective) + SCATTERED * data.size + DENSE": (_WAY),
    "tfopt/linear_model/classifier.py::SDCAClassifier._constant_intercept:"
    " n_positive = np.count_nonzero(y > 0) -> n_positive = np.count_nonzero(y >"
    "= 0)": ("labels are -1 and 1"),
    "tfopt/linear_model/classifier.py::SDCAClassifier._set_attributes: sel"
    "f.intercept_ -= self.intercept_.mean() -> self.intercept_ += self.intercep"
    "t_.mean()": ("the mean is 0 already, but for rounding"),
    "tfopt/linear_model/parameters.py::SDCAOptions._check_options: self._l2() -> pass": (
        "the fit makes it again, and checks it"
    ),
    "tfopt/linear_model/parameters.py::_first_draw: return int(check_random_s"
    "tate(seed).randint(2**31 - 1)) -> return int(check_random_state(seed).rand"
    "int(2**31 - 0))": ("the least of 2**31 numbers is left out"),
    "tfopt/linear_model/fitted.py::SDCAResults._advice: if self._in_block"
    "s and not applies_in_blocks(self._objective(self.n_features_in_, 1)): -> i"
    "f self._in_blocks and not applies_in_blocks(self._objective(self.n_feature"
    "s_in_, 2)):": ("what is asked does not depend on the number of threads"),
    "tfopt/optimizers/algorithms/adafactor.py::Adafactor._resource_apply_dense:"
    " w, g = var.astype(real, copy=False), grad.astype(real, copy=False) -> w, "
    "g = var.astype(real, copy=True), grad.astype(real, copy=False)": ("a copy that is only read"),
    "tfopt/optimizers/step/deferred_rows.py::DeferredRows.prepare: decays "
    "= tuple(1.0 if name is None else hypers[name] for name in names) -> decays"
    " = tuple((2 * 1.0) if name is None else hypers[name] for name in names)": (
        "what does not decay is compared with itself"
    ),
    "tfopt/kernels/update/steps_baseline.pyx::reduce_lamb_1: cdef double beta1 ="
    " h[4] -> cdef double beta1 = h[3]": (_UNUSED),
    "tfopt/kernels/update/segment_sum.pyx::_step_singles: cdef int last = w.n_op"
    "erands - 1 -> cdef int last = w.n_operands": ("what is prefetched"),
    "tfopt/kernels/update/commit.pyx::carry_out: (<Write>write).check() -> pass": (
        "launches on a GPU alone have something to check"
    ),
    "tfopt/kernels/reduce/row_sums.pxd::add_rows: cdef Py_ssize_t i, j, run, sto"
    "p, row_bytes = width * sizeof(real) -> cdef Py_ssize_t i, j, run, stop, row"
    "_bytes = width": ("what is prefetched"),
    "tfopt/kernels/linear/loss_formulas.pxd::cornered_value: return (high if r >"
    " 0 else low) * beyond(r, epsilon) -> return (high if r >= 0 else low) * bey"
    "ond(r, epsilon)": ("beyond a corner by 0, any slope gives 0"),
    "tfopt/kernels/linear/ftrl.pyx::learn: ahead.data, ahead.size = <const char "
    "*>values, sizeof(real) -> pass": ("what is prefetched"),
    "tfopt/kernels/arrays/layout.pyx::_reach: total += strides[k][axis] if strid"
    "es[k][axis] >= 0 else -strides[k][axis] -> total += strides[k][axis] if str"
    "ides[k][axis] >= 0 else -strides[k][n_operands]": ("the order in which elements are visited"),
    "tfopt/kernels/update/whole_tensors.pyx::run_tensors: cdef Py_ssize_t t, spa"
    "ns = 0 -> cdef Py_ssize_t t, spans = 1": (_THREADS),
    "tfopt/kernels/update/row_buckets.pyx::run_buckets: _share(w, _divide, n, 2)"
    " -> _share(w, _divide, n, 1)": (_THREADS),
    "tfopt/clip_ops/by_value.py::clip_by_value: if out is None and is_recorded(t"
    ", clip_value_min, clip_value_max): -> if out is None and is_recorded(clip_v"
    "alue_min, t, clip_value_max):": ("the order in which operands are looked at"),
    "tfopt/kernels/linear/multiclass.pyx::_dot_of: if k + FEATURES_AHEAD < n: ->"
    " if k + FEATURES_AHEAD <= n:": ("what is prefetched"),
    "tfopt/kernels/linear/loss_formulas.pxd::poisson_step: cdef double x = log(r"
    "), d = (x + K * r - z) / (1 + K * r) -> cdef double x = log(r), d = (x + K "
    "* r + z) / (1 + K * r)": ("where Newton's method starts, which ends at the same root"),
    "tfopt/kernels/linear/cholesky.pxd::substitute: for i in range(n): -> for i in range(width):": (
        "what lies behind the n numbers is not read"
    ),
    "tfopt/linear_model/regressor.py::LinearRegressor._checked: X, y = self._val"
    'idate_features( *(X, True), y=y, order="C", y_numeric=True, multi_output='
    "n_targets > 1 ) -> X, y = self._validate_features( *(X, True), y=y, order="
    '"C", y_numeric=False, multi_output=n_targets > 1 )': (
        "targets that are objects become numbers later, too"
    ),
    "tfopt/kernels/text/libsvm.pyx::_survey_row: q = end - 1 -> q = end - 0": (
        "what follows a line is no colon"
    ),
    "tfopt/checkpoints/safetensors.py::read_text: if length > min(size - 8, MOST"
    "_TEXT): -> if length > min(size - 7, MOST_TEXT):": (
        "such a header is longer than the file, which is found as it is read"
    ),
    "tfopt/optimizers/base/minimize.py::_upstream: return times(upstream, scale)"
    " -> return times(scale, upstream)": ("a product of two numbers"),
    "tfopt/kernels/platform/runtime.pyx::dismiss_team: _enter(&_saved[t.work], n"
    "ow, now - t.asked, (t.ended - t.began) * (1 + others)) -> pass": (_THREADS),
    "tfopt/kernels/arrays/layout.pyx::_walk_along: for i in range(n - 1): -> for"
    " i in range(n + 1):": ("arrays that could be visited together are visited one after another"),
    "tfopt/kernels/linear/second_order.pyx::newton_system: cdef Py_ssize_t share"
    "s = max(1, min(SHARES, bounds.n_rows // (4 * (n_weights + 1)))) -> cdef Py_"
    "ssize_t shares = max(1, min(SHARES, bounds.n_rows // (4 )))": (
        "into how many parts a sum of rows is divided, on any number of threads"
    ),
    "tfopt/kernels/linear/batches.pxd::set_hash: cdef Py_ssize_t places = 2 * b."
    "most_entries -> cdef Py_ssize_t places = 3 * b.most_entries": ("how large a hash table is"),
    "tfopt/kernels/update/rules.pxd::keras_adam_with_amsgrad: vhat[0] = maximum_"
    "or_nan(vhat[0] - zero, v[0]) -> vhat[0] = maximum_or_nan(vhat[0] , v[0])": (
        "x86's maximum of denormals that count as zero is zero already"
    ),
}
