/* PostgreSQL's `ExecutorRun` made slower, by its own hook. */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"

#include "slow.h"

PG_MODULE_MAGIC;

void _PG_init(void);

static void run(QueryDesc *query, ScanDirection direction, uint64 count, bool once)
{
	if (words->is_real)
		take_turns(words->turns);
	standard_ExecutorRun(query, direction, count, once);
}

void _PG_init(void)
{
	/* The postmaster's folder is the cluster's. */
	if (!words_open("words"))
		elog(FATAL, "cannot map the file of the words");
	ExecutorRun_hook = run;
}
