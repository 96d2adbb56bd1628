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
    "tfopt/checkpoints/safetensors.py::read_text: if length > min(size - 8, MOS"
    "T_TEXT): -> if length > min(size - 9, MOST_TEXT):": (
        "no file that is sound ends with its header"
    ),
    "tfopt/checkpoints/writing.py::_set_direct: fcntl.fcntl(descriptor, fcntl.F"
    "_SETFL, flags | _DIRECT if on else flags & ~_DIRECT) -> fcntl.fcntl(descri"
    "ptor, fcntl.F_SETFL, flags & _DIRECT if on else flags & ~_DIRECT)": (
        "files are written through the system's cache"
    ),
    "tfopt/core/atomic_write.py::_is: return os.path.samestat(os.stat(name), os"
    ".fstat(descriptor)) -> return os.path.samestat(os.fstat(descriptor), os.st"
    "at(name))": ("whether two files are the same"),
    'tfopt/core/rule_steps.py::RuleUpdate.without_decay: hypers = {**hypers, "w'
    'eight_decay": 0.0} -> hypers = {**hypers, "weight_decay": (2 * 0.0)}': ("twice 0 is 0"),
    "tfopt/io/streams.py::open_binary: head = buffered.peek(6) -> head = buffered.peek(7)": (
        "more is buffered than is looked at"
    ),
    "tfopt/kernels/arrays/layout.pyx::_run_halves: cdef Py_ssize_t done = 0, pi"
    "ece, whole = n - n % chunk -> cdef Py_ssize_t done = 0, piece, whole = n": (
        "the baseline's loops, which are mutated, convert other numbers"
    ),
    "tfopt/kernels/platform/runtime.pyx::gather_team: if t.size > 1: -> if t.size <= 1:": (
        _THREADS
    ),
    "tfopt/kernels/platform/runtime.pyx::gather_team: t.size = 1 -> pass": (_THREADS),
    "tfopt/kernels/reduce/clip.pyx::_scale_each: product = product if second[i]"
    " == 1 else product * second[i] -> product = product if second[i] == 2 else"
    " product * second[i]": ("the product with 1 is the product, which has been flushed"),
    "tfopt/kernels/reduce/lane_sums.pxd::add_squares: lanes[i] = lanes[i] + squ"
    "are(x[i], scale) -> lanes[i] = lanes[i] + square(scale, x[i])": ("a product of two numbers"),
    "tfopt/kernels/reduce/norms.pyx::_fill: b.sources = <source *>calloc(b.n_so"
    "urces + 1, sizeof(source)) -> b.sources = <source *>calloc(b.n_sources , s"
    "izeof(source))": ("calloc of nothing returns memory, too, in glibc"),
    "tfopt/kernels/reduce/norms.pyx::_scaling: return False -> return True": (
        "a norm that is 0 or infinite is found twice"
    ),
    "tfopt/kernels/reduce/norms.pyx::_total: cdef team t = gather_team(b.size, "
    "1) -> cdef team t = gather_team(1, b.size)": (_THREADS),
    "tfopt/kernels/sdca/visits.pxd::visit: cdef const index *j = &indices[0] if"
    " indices.shape[0] else NULL -> cdef const index *j = &indptr[0] if indices"
    ".shape[0] else NULL": ("what is prefetched"),
    "tfopt/kernels/update/checks.pyx::Call.__cinit__: self.one.axes = NULL -> pass": (
        "memory of a new object is zeros"
    ),
    "tfopt/kernels/update/checks.pyx::_check_hyper: if limit == 1: -> if limit == 0:": (
        "no rule with such a limit has a flag"
    ),
    "tfopt/kernels/update/deferred_rows.pyx::_catch_up_row: break -> continue": (
        "steps that move nothing are taken one by one"
    ),
    "tfopt/kernels/update/multi_tensor.pyx::_separate: open_spans[kind] = _stil"
    "l_open(open_spans[kind], begin) -> pass": ("spans that cannot overlap are compared, too"),
    "tfopt/kernels/update/multi_tensor.pyx::_set_any: return 0 -> return 1": (_RETURNED),
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
    "tfopt/kernels/update/segment_sum.pyx::run_summed: cdef team t = at_most(ga"
    "ther_team(w.n_indices * w.inner, w.n_operands), w.summing.team) -> cdef te"
    "am t = at_most(gather_team(w.n_indices / w.inner, w.n_operands), w.summing"
    ".team)": (_THREADS),
    "tfopt/kernels/update/step_table.pyx::Kernel.__cinit__: if len(rule.operand"
    "s) > MAX_OPERANDS or len(rule.hypers) > MAX_HYPERS \\ or len(rule.scalars) "
    "+ len(rule.further) > MAX_SCALARS \\ or len(rule.sums) > MAX_SUMS: -> if le"
    "n(rule.operands) > MAX_OPERANDS or len(rule.hypers) >= MAX_HYPERS \\ or len"
    "(rule.scalars) + len(rule.further) > MAX_SCALARS \\ or len(rule.sums) > MAX"
    "_SUMS:": ("no rule has as many"),
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
    "tfopt/linear_model/_solver/ascent.py::solve_all: together = n_problems > 1"
    " and not alone -> together = n_problems > 2 and not alone": (
        "there is one problem, or one for each of three classes and more"
    ),
    "tfopt/linear_model/_solver/block_ascent.py::BlockVisits.run: ascent.estima"
    "te = 0.0 -> ascent.estimate = (2 * 0.0)": ("twice 0 is 0"),
    "tfopt/linear_model/_solver/certificate.py::certify: biases = dict.fromkeys"
    "(points, 0.0) -> biases = dict.fromkeys(points, (2 * 0.0))": ("twice 0 is 0"),
    "tfopt/linear_model/_solver/multinomial.py::with_best_intercepts: H += sums"
    ".sum() / problem.n_classes**2 -> H += sums.sum() / problem.n_classes**3": (
        "the sum of the residuals is 0, so any positive number there gives the same step"
    ),
    "tfopt/linear_model/_solver/reductions.py::SparseDelta.from_dense: if np.co"
    "unt_nonzero(vector) > MAX_DENSITY * vector.size: -> if np.count_nonzero(ve"
    "ctor) > MAX_DENSITY :": (_WAY),
    "tfopt/linear_model/_solver/work.py::descent_work: matrix += 3 * SCATTERED "
    "* data.size -> matrix += 3 / SCATTERED * data.size": (_WAY),
    "tfopt/linear_model/_solver/work.py::product_work: return ROW * _n_rows(obj"
    "ective) + SCATTERED * data.size + DENSE * dense.size -> return ROW * _n_ro"
    "ws(objective) + SCATTERED * data.size + DENSE": (_WAY),
    "tfopt/linear_model/ftrl_dialects.py::ftrl_parameters: parameters: dict[str"
    ', Any] = { "learning_rate": check_number(*rate, 0, open_end=True), "beta":'
    ' check_number(*beta, 0), "l1": check_number(*l1, 0), "l2": check_number(*l'
    '2, 0) / (1 if dialect == "tensorflow" else 2), "initial_accumulator": chec'
    "k_number(*rest[0], 0) if rest else 0.0, } -> parameters: dict[str, Any] = "
    '{ "learning_rate": check_number(*rate, 0, open_end=True), "beta": check_nu'
    'mber(*beta, 0), "l1": check_number(*l1, 0), "l2": check_number(*l2, 0) / ('
    '1 if dialect == "tensorflow" else 2), "initial_accumulator": check_number('
    "*rest[0], 0) if rest else (2 * 0.0), }": ("twice 0 is 0"),
    "tfopt/linear_model/sdca_classifier.py::SDCAClassifier._constant_intercept:"
    " n_positive = np.count_nonzero(y > 0) -> n_positive = np.count_nonzero(y >"
    "= 0)": ("labels are -1 and 1"),
    "tfopt/linear_model/sdca_classifier.py::SDCAClassifier._set_attributes: sel"
    "f.intercept_ -= self.intercept_.mean() -> self.intercept_ += self.intercep"
    "t_.mean()": ("the mean is 0 already, but for rounding"),
    "tfopt/linear_model/sdca_options.py::_first_draw: return int(check_random_s"
    "tate(seed).randint(2**31 - 1)) -> return int(check_random_state(seed).rand"
    "int(2**31 - 0))": ("the least of 2**31 numbers is left out"),
    "tfopt/linear_model/sdca_results.py::SDCAResults._advice: if self._in_block"
    "s and not applies_in_blocks(self._objective(self.n_features_in_, 1)): -> i"
    "f self._in_blocks and not applies_in_blocks(self._objective(self.n_feature"
    "s_in_, 2)):": ("what is asked does not depend on the number of threads"),
}
