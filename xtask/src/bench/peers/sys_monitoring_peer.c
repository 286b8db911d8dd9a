/*
 * What a profiler that slows Python functions from inside does on CPython 3.12 and newer: a callback for
 * PY_START by sys.monitoring, asked for globally. It looks the code object up, answers DISABLE for what does
 * not match, looks whether the window is open, counts, and reads the clock until the delay is over. SonicField's
 * Speed Bump goes these steps, in this order, most of them in Python; here all of them are C.
 *
 * install(file, qualname, delay_ns, frequency, opens_after_ns), uninstall() -> matching calls
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <time.h>

#ifdef __x86_64__
#include <immintrin.h>
#define PAUSE() _mm_pause()
#else
#define PAUSE() ((void)0)
#endif

#define TOOL 4
#define PY_START 1
/* A power of two. What does not find a place is asked about again at each call. */
#define PLACES 65536

struct known {
	PyObject *code;
	int matches;
};

static struct known table[PLACES];
static PyObject *disable, *callback, *file, *qualname;
static uint64_t delay_ns, frequency, opens_ns, calls;

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void spin(void)
{
	uint64_t end = now() + delay_ns;
	while (now() < end)
		PAUSE();
}

static int is_equal(PyObject *code, const char *attribute, PyObject *wanted)
{
	PyObject *value = PyObject_GetAttrString(code, attribute);
	int equal = value && PyUnicode_Compare(value, wanted) == 0;
	Py_XDECREF(value);
	PyErr_Clear();
	return equal;
}

static int matches(PyObject *code)
{
	uintptr_t place = ((uintptr_t)code >> 4) * 0x9E3779B97F4A7C15u >> 48;
	for (int step = 0; step < 16; step++) {
		struct known *known = &table[(place + step) % PLACES];
		if (known->code == code)
			return known->matches;
		if (!known->code) {
			/* Kept, so that its address means nothing else later. */
			known->code = Py_NewRef(code);
			known->matches =
				is_equal(code, "co_filename", file) && is_equal(code, "co_qualname", qualname);
			return known->matches;
		}
	}
	return is_equal(code, "co_filename", file) && is_equal(code, "co_qualname", qualname);
}

static PyObject *on_start(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	if (count < 1 || !matches(arguments[0]))
		return Py_NewRef(disable);
	calls++;
	if (now() < opens_ns)
		Py_RETURN_NONE;
	if (frequency > 1 && calls % frequency != 0)
		Py_RETURN_NONE;
	spin();
	Py_RETURN_NONE;
}

static PyMethodDef definition = {"on_start", (PyCFunction)(void (*)(void))on_start, METH_FASTCALL, NULL};

static PyObject *monitoring(void)
{
	return PySys_GetObject("monitoring");
}

static PyObject *install(PyObject *self, PyObject *arguments)
{
	unsigned long long delay, every, opens_after;
	PyObject *where, *what, *done;
	if (!PyArg_ParseTuple(arguments, "UUKKK", &where, &what, &delay, &every, &opens_after))
		return NULL;
	for (int i = 0; i < PLACES; i++)
		Py_CLEAR(table[i].code);
	Py_XSETREF(file, Py_NewRef(where));
	Py_XSETREF(qualname, Py_NewRef(what));
	delay_ns = delay;
	frequency = every;
	opens_ns = opens_after ? now() + opens_after : 0;
	calls = 0;
	if (!disable && !(disable = PyObject_GetAttrString(monitoring(), "DISABLE")))
		return NULL;
	if (!callback && !(callback = PyCFunction_New(&definition, NULL)))
		return NULL;
	if (!(done = PyObject_CallMethod(monitoring(), "use_tool_id", "is", TOOL, "peer")))
		return NULL;
	Py_DECREF(done);
	done = PyObject_CallMethod(monitoring(), "register_callback", "iiO", TOOL, PY_START, callback);
	if (!done)
		return NULL;
	Py_DECREF(done);
	if (!(done = PyObject_CallMethod(monitoring(), "restart_events", NULL)))
		return NULL;
	Py_DECREF(done);
	return PyObject_CallMethod(monitoring(), "set_events", "ii", TOOL, PY_START);
}

static PyObject *uninstall(PyObject *self, PyObject *none)
{
	PyObject *done = PyObject_CallMethod(monitoring(), "set_events", "ii", TOOL, 0);
	if (!done)
		return NULL;
	Py_DECREF(done);
	done = PyObject_CallMethod(monitoring(), "register_callback", "iiO", TOOL, PY_START, Py_None);
	if (!done)
		return NULL;
	Py_DECREF(done);
	if (!(done = PyObject_CallMethod(monitoring(), "free_tool_id", "i", TOOL)))
		return NULL;
	Py_DECREF(done);
	return PyLong_FromUnsignedLongLong(calls);
}

static PyMethodDef methods[] = {
	{"install", install, METH_VARARGS, NULL},
	{"uninstall", uninstall, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "sys_monitoring_peer",
	.m_size = -1,
	.m_methods = methods,
};

PyMODINIT_FUNC PyInit_sys_monitoring_peer(void)
{
	return PyModule_Create(&module);
}
