# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A budget of memory, and what is over it in files."""
import budget_case
import memory_cgroup
import spilled

RUN = ("--backend", "memfd", "--pages", "4K", "--allow", "unlocked")
SIZES = {"mib": 192, "budget_mib": 12}


def cases(tmp_path):
    """In a cgroup, where one can be made; a booted kernel always has one:
    budget_on_driver.py. Small pages are charged to it, hugetlb's are not."""
    if memory_cgroup.writable():
        spilled = yield from budget_case.check_within(
            str(tmp_path), RUN, limit_mib=96, others=("actmem", "stock"), **SIZES)
    else:
        spilled = budget_case.spills(spill=str(tmp_path), run=RUN, **SIZES)
        yield from budget_case.check_spilled(spilled, **SIZES)
    yield from budget_case.check_bits(spilled, SIZES["mib"], RUN)


def test_a_training_of_many_times_its_budget(tmp_path):
    assert [(name, seen) for good, name, seen in cases(tmp_path) if not good] == []


# 12 layers of four values of 256 KiB: three times the budget.
MODEL = """
    from models import Count, POLICY, close, data, layer, scanned, unrolled
    VALUE, VALUES = 256 << 10, 48
    weights, x = data(layers=12, batch=16, tokens=64, width=64)
    def saving(f):
        return actmem.jax.checkpoint(f, policy=POLICY, offload_argnums=0)
    def forward_and_backward():
        forward = jax.jit(lambda weights, x: jax.vjp(scanned(saving(layer)),
                                                     weights, x))
        return forward, jax.jit(lambda pullback: pullback(1.0))
    def step(loss):
        return jax.jit(jax.grad(loss))
"""


def trained(script, tmp_path, **environment):
    return spilled.trained(MODEL, script, tmp_path, **environment)


def test_what_is_over_the_budget(tmp_path):
    """Gradients, counts and ends, each of them as without a budget."""
    seen = trained("""
        actmem.open(budget=4 * MIB, spill=os.environ["SPILL"])
        assert store()["budget_bytes"] == store()["puts_total"] == 0
        stock = jax.checkpoint
        seen = {}
        for form in (scanned, unrolled):
            wanted = step(form(jax.checkpoint(layer, policy=POLICY)))(weights, x)
            count = Count()
            run = step(form(saving(layer)))
            results = [run(weights, x) for _ in range(3)]
            for result in results[1:]:
                jax.tree.map(np.testing.assert_array_equal, results[0], result)
            close(results[0], wanted, 16)
            assert count("puts_total") == count("takes_total") == 3 * VALUES
        after = store()
        seen["trained"] = after
        seen["threads"] = []
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/comm", encoding="ascii") as file:
                seen["threads"].append(file.read().strip())

        actmem.jax.configure(checksum=True)
        count = Count()
        jax.tree.map(np.testing.assert_array_equal, results[0], run(weights, x))
        seen["compared"] = count("checksums_total")
        actmem.jax.configure(checksum=False)

        forward, backward = forward_and_backward()
        pullbacks = [forward(weights, x)[1] for _ in range(4)]
        jax.block_until_ready(pullbacks)
        seen["abandoned"] = [count("reclaimed_blocks_total"), store()["blocks"],
                             store()["spilled_bytes"] > 0]
        first, second = [backward(pullback) for pullback in pullbacks[:1:-1]]
        jax.tree.map(np.testing.assert_array_equal, first, second)
        del pullbacks
        actmem.jax.stats()
        seen["taken"] = store()["blocks"]

        left = jax.block_until_ready(forward(weights, x)[1])
        before = store()
        counted = actmem.counters()
        seen["counted"] = [counted["stores"], counted["spilled_bytes"] > 0]
        seen["reset"] = [actmem.jax.reset(), store(), actmem.counters(),
                         store()["puts_total"] - before["puts_total"]]

        empty = jnp.zeros((16, 0, 64))
        f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), offload_argnums=0,
                                  min_bytes=0)
        count = Count()
        jax.block_until_ready(step(lambda x: jnp.sum(f(x)))(empty))
        seen["empty"] = [count("puts_total"),
                         store()["puts_total"] - before["puts_total"]]
        print(json.dumps(seen))
    """, tmp_path)
    after = seen["trained"]
    assert after["budget_bytes"] == 4 << 20 >= after["memory_bytes_peak"]
    assert after["puts_total"] == after["takes_total"] == 6 * 48
    # XLA's own threads compute while puts and takes wait.
    assert "actmem-wait" in seen["threads"]
    assert after["spilled_bytes_total"] >= 6 * (8 << 20)
    assert after["hits_total"] + after["late_total"] + after["misses_total"] == \
        after["takes_total"]
    assert after["resident_bytes"] == after["spilled_bytes"] == after["blocks"] == 0
    assert seen["compared"] == 48
    assert seen["abandoned"] == [0, 4 * 48, True]
    assert seen["taken"] == 0
    freed, left, counters, more = seen["reset"]
    assert seen["counted"] == [1, True]
    assert freed == 48 and more == 0
    for name in ("blocks", "resident_bytes", "spilled_bytes", "memory_bytes",
                 "file_bytes"):
        assert left[name] == 0, left
    for name in ("regions", "blocks", "heaps", "stores", "spilled_bytes"):
        assert counters[name] == 0, counters
    assert seen["empty"] == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_reset_after_a_failed_step_outside_of_jit(tmp_path):
    """Python still holds tokens of the programs that failed. reset() must not raise their error."""
    seen = trained("""
        import gc
        x = jnp.ones((1200, 1024), jnp.float32)
        sin = actmem.jax.checkpoint(jnp.sin, offload_argnums=(0,))
        def failed():
            value, pull = jax.vjp(sin, x)
            return message(pull, value)
        seen = [failed(), failed()]
        gc.collect()
        seen += [actmem.jax.reset(), actmem.jax.stats()["live_blocks"]]
        seen.append(float(jax.grad(lambda x: sin(x).sum())(jnp.zeros(()))))
        print(json.dumps(seen))
        """, tmp_path, ACTMEM_BUDGET="4M")
    *errors, freed, left, gradient = seen
    assert all("budget= (ACTMEM_BUDGET) is 4.0 MiB" in error for error in errors), errors
    assert [freed, left, gradient] == [0, 0, 1]


def test_errors_name_the_knob(tmp_path):
    seen = trained("""
        seen = {}
        every = step(scanned(saving(layer)))
        def attempt(name, run=every, **variables):
            os.environ.update(variables)
            seen[name] = message(run, weights, x)
            # Other threads may still be at what this step has begun; the next
            # one is to have a store of its own.
            actmem.jax.reset()
            while store()["memory_bytes"] or actmem.jax.stats()["live_blocks"]:
                time.sleep(0.05)
                actmem.jax.reset()
            seen[name + " left"] = store()["blocks"]
            for variable in variables:
                del os.environ[variable]
        spill = os.environ["SPILL"]
        attempt("full", ACTMEM_BUDGET="4M")
        attempt("dead", lambda *inputs: message(every, *inputs) and every(*inputs),
                ACTMEM_BUDGET="4M")
        attempt("limit", ACTMEM_BUDGET="4M", ACTMEM_SPILL=spill,
                ACTMEM_SPILL_LIMIT="2M")
        attempt("allowed", ACTMEM_BUDGET="4M", ACTMEM_SPILL=spill,
                ACTMEM_SPILL_LIMIT="2M", ACTMEM_SPILL_ALLOW="memory")
        attempt("over", ACTMEM_HEAP_LIMIT="4M")
        attempt("word", ACTMEM_BUDGET="4M", ACTMEM_SPILL=spill,
                ACTMEM_SPILL_ALLOW="swap")
        attempt("large", step(lambda w, x: jnp.sum(saving(jnp.sin)(
            jnp.ones((1 << 21,)) * w["q"][0, 0, 0]))), ACTMEM_BUDGET="4M",
            ACTMEM_SPILL=spill)
        attempt("small", ACTMEM_BUDGET="4K", ACTMEM_SPILL=spill)
        attempt("both", ACTMEM_BUDGET="4M", ACTMEM_HEAP_LIMIT="4M")
        attempt("no budget", ACTMEM_SPILL=spill)
        attempt("no directory", ACTMEM_BUDGET="4M", ACTMEM_SPILL_LIMIT="2M")
        attempt("little", ACTMEM_BUDGET="4M", ACTMEM_SPILL=spill,
                ACTMEM_SPILL_LIMIT="1K")
        attempt("missing", ACTMEM_BUDGET="4M", ACTMEM_SPILL=spill + "/none")
        attempt("not direct", ACTMEM_BUDGET="4M", ACTMEM_SPILL="/proc")
        attempt("good", ACTMEM_BUDGET="4M", ACTMEM_SPILL=spill)
        print(json.dumps(seen))
    """, tmp_path)
    for name, words in {
            "full": ["RESOURCE_EXHAUSTED", "block of 262144 bytes at argument 0 of layer",
                     "budget= (ACTMEM_BUDGET) of 4.0 MiB is used up", "spill= (ACTMEM_SPILL)"],
            "dead": ["budget= (ACTMEM_BUDGET) of 4.0 MiB is used up", "actmem.jax.reset() frees"],
            "limit": ["RESOURCE_EXHAUSTED", "layer (models.py) #", "of 256.0 KiB cannot be spilled",
                      "spill_limit= (ACTMEM_SPILL_LIMIT) is 2.0 MiB"],
            "over": ["heap_limit= (ACTMEM_HEAP_LIMIT) of 4.0 MiB is used up; raise it"],
            "word": ["spill_allow= (ACTMEM_SPILL_ALLOW) is 'swap'", "memory, buffered"],
            "large": ["block of 8388608 bytes", "4.0 MiB", "ACTMEM_BUDGET"],
            "small": ["INVALID_ARGUMENT", "it must be at least two pages of 4.0 KiB", "ACTMEM_BUDGET"],
            "both": ["ACTMEM_BUDGET", "ACTMEM_HEAP_LIMIT", "omit one of them"],
            "no budget": ["there is no budget", "set budget="],
            "no directory": ["no directory to spill to", "set spill="],
            "little": ["spill_limit=", "from 2M on"],
            "missing": ["nothing can be saved at argument 0 of layer", str(tmp_path / "none"),
                        "No such file or directory", "another directory with spill="],
            "not direct": ["'/proc'", "another directory with spill="]}.items():
        for word in words:
            assert word in str(seen[name]), (name, word, seen)
        assert ("reset()" in str(seen[name])) is (name == "dead"), (name, seen)
        assert seen[name + " left"] == 0
    for name in ("budget", "_bytes", "spill_paths"):
        assert name not in seen["over"], seen["over"]
    assert seen["good"] is None and seen["allowed"] is None


def test_what_is_allowed(tmp_path):
    """Said by the program, which goes before the environment."""
    script = """
        actmem.open(budget=4 * MIB, spill=os.environ["SPILL"],
                    spill_limit=2 * MIB, spill_allow=ALLOW)
        every = step(scanned(saving(layer)))
        print(json.dumps([message(every, weights, x), store()["failed_spills_total"]]))
    """
    failure, failed = trained(script.replace("ALLOW", '["memory", "buffered"]'), tmp_path)
    assert failure is None and failed > 0
    failure, failed = trained(script.replace("ALLOW", "()"), tmp_path,
                              ACTMEM_SPILL_ALLOW="memory")
    assert "spill_limit= (ACTMEM_SPILL_LIMIT) is 2.0 MiB" in failure
    failure, failed = trained(script.replace("ALLOW", "None"), tmp_path,
                              ACTMEM_SPILL_ALLOW="memory")
    assert failure is None and failed > 0


def test_a_file_that_fails(tmp_path):
    """What cannot be read back is an error of the step, and lost; what comes
    next works."""
    error, again, lost, left, blocks = trained("""
        actmem.open(budget=4 * MIB, spill=os.environ["SPILL"])
        forward, backward = forward_and_backward()
        pullback = jax.block_until_ready(forward(weights, x)[1])
        opened = files()
        # Blocks may still be on their way to the file, which they make longer.
        while any(os.stat(file).st_size for file in opened):
            for file in opened:
                os.truncate(file, 0)
            time.sleep(1)
        error = message(backward, pullback)
        lost = actmem.jax.stats()["lost_blocks_total"]
        actmem.jax.reset()
        wanted = step(scanned(jax.checkpoint(layer, policy=POLICY)))(weights, x)
        again = message(lambda: close(step(scanned(saving(layer)))(weights, x),
                                      wanted, 16))
        print(json.dumps([error, again, lost, actmem.jax.stats()["live_blocks"],
                          store()["blocks"]]))
    """, tmp_path)
    # Which value is the first that is only in a file depends on the disk.
    for word in ("DATA_LOSS", "262144 bytes saved at ", " layer (models.py)", "cannot be read back",
                 ": block '", str(tmp_path)):
        assert word in error, error
    assert again is None and lost > 0 and left == blocks == 0
