/*
 * grange_spank: jobs of Slurm in virtual machines of their own.
 *
 *   sbatch --vm=IMAGE[:SHAPE] [--vm-mount=SRC[:DST[:ro]],...] [--vm-publish=PORT[:HERE][@NAME],...] job.sh
 *   sbatch --vm=oci://REGISTRY/NAME:TAG[,SHAPE] job.sh
 *   sbatch --vm=list
 *
 * On the host, in the task's process, as the job's user, this puts `grange exec --batch slurm` in the job's place. It decides who
 * gets a virtual machine, and nothing else: what the machine may have, the agent decides from what Slurm gave the job.
 *
 * It fails closed. A job that is due a virtual machine and can not be handed to the wrapper ends with status 199 or 197. Slurm ignores errors
 * of an option's callback on the host, so those only note what is wrong, and task_init acts on it. Nothing is ever run as root.
 *
 * In plugstack.conf, on hosts:   required PATH/grange_spank.so wrapper=/usr/local/bin/grange [default=IMAGE[:SHAPE]] ...
 * and where people submit:       optional PATH/grange_spank.so [catalogue=FILE]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

SPANK_PLUGIN(grange, 1)

enum { OPT_VM = 1, OPT_MOUNT, OPT_NO_VM, OPT_PUBLISH };
/* As grange exec ends without a virtual machine: RequeueExit in slurm.conf has the first; the second is for what another start can not mend. */
enum { AGAIN = 199, NEVER = 197 };
/* in the place of an image: the agent's policy has the word */
#define BY_POLICY "@policy"
enum { MAX_ARGS = 32, MAX_TEXT = 4096 };

/* what plugstack.conf says */
static struct {
	const char *wrapper, *socket, *fallback, *catalogue, *prolog;
	uid_t min_uid;
	uint32_t requeues;
	int allow_metal;
	char wrong[256]; /* the first thing that makes no sense; no task is run then */
} conf = {.wrapper = "/usr/local/bin/grange", .socket = "/run/grange/agent.sock", .min_uid = 1000, .requeues = 3};

/* Values of an option that may be given several times. */
struct list {
	const char *option, *variable; /* the variable has it in the environment that Slurm keeps for plug-ins */
	const char *wanted;
	int (*sound)(const char *one);
	char text[MAX_TEXT]; /* all of them together, each once, with commas between */
	int options;
};

static int sound_mount(const char *one);
static int sound_port(const char *one);

/* what the user asked for */
static struct {
	char vm[512], wrong[256];
	struct list mounts, ports;
	int no_vm;
} asked = {
	.mounts = {.option = "--vm-mount", .variable = "_SLURM_SPANK_OPTION_grange_vm_mount", .sound = sound_mount,
		   .wanted = "wanted SRC[:DST[:ro]] with absolute paths, separated by commas"},
	.ports = {.option = "--vm-publish", .variable = "_SLURM_SPANK_OPTION_grange_vm_publish", .sound = sound_port,
		  .wanted = "wanted PORT[:HERE][@NAME], separated by commas"},
};

static void __attribute__((format(printf, 2, 3))) complain(char wrong[256], const char *format, ...)
{
	va_list args;
	if (wrong[0])
		return;
	va_start(args, format);
	vsnprintf(wrong, 256, format, args);
	va_end(args);
}

/* value of NAME=VALUE, or NULL */
static const char *value_of(const char *arg, const char *name)
{
	size_t n = strlen(name);
	return strncmp(arg, name, n) == 0 && arg[n] == '=' ? arg + n + 1 : NULL;
}

static void configure(int ac, char **av)
{
	const char *v;
	char *end;
	for (int i = 0; i < ac; i++) {
		if ((v = value_of(av[i], "wrapper")))
			conf.wrapper = v;
		else if ((v = value_of(av[i], "socket")))
			conf.socket = v;
		else if ((v = value_of(av[i], "default")))
			conf.fallback = v;
		else if ((v = value_of(av[i], "catalogue")))
			conf.catalogue = v;
		else if ((v = value_of(av[i], "task_prolog")))
			conf.prolog = v;
		else if ((v = value_of(av[i], "allow_metal")) && (!strcmp(v, "yes") || !strcmp(v, "no")))
			conf.allow_metal = v[0] == 'y';
		else if ((v = value_of(av[i], "min_uid"))) {
			unsigned long id = strtoul(v, &end, 10);
			if (v[0] < '0' || v[0] > '9' || *end || id < 1 || id > UINT_MAX / 2)
				complain(conf.wrong, "min_uid=%s is no user ID above 0", v);
			conf.min_uid = (uid_t)id;
		} else if ((v = value_of(av[i], "requeues"))) {
			unsigned long n = strtoul(v, &end, 10);
			if (v[0] < '0' || v[0] > '9' || *end || n > 1000)
				complain(conf.wrong, "requeues=%s is no number up to 1000", v);
			conf.requeues = (uint32_t)n;
		} else
			complain(conf.wrong, "plugstack.conf: %s makes no sense", av[i]);
	}
	if (conf.wrapper[0] != '/' || conf.socket[0] != '/')
		complain(conf.wrong, "plugstack.conf: wrapper and socket are absolute paths");
}

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* IMAGE[:SHAPE], where IMAGE may be sha256:DIGEST; or SCHEME://PLACE[,SHAPE], for a place has colons of its own. Returns 0, or -1 for what
 * can be neither. */
static int split(const char *text, char image[256], char shape[256])
{
	int url = strstr(text, "://") != NULL;
	const char *at = strncmp(text, "sha256:", 7) == 0 ? text + 7 : text;
	const char *end = strchr(at, url ? ',' : ':');
	size_t n = end ? (size_t)(end - text) : strlen(text);
	shape[0] = 0;
	if (n == 0 || n >= 256 || (end && (!end[1] || strlen(end + 1) >= 256)))
		return -1;
	memcpy(image, text, n);
	image[n] = 0;
	if (end)
		strcpy(shape, end + 1);
	if (image[strspn(image, url ? NAME_CHARS ":/@+~%" : NAME_CHARS ":")] || shape[strspn(shape, NAME_CHARS)])
		return -1;
	return image[0] == '-' || shape[0] == '-' ? -1 : 0;
}

/* known looks a word up in the catalogue: lines "image NAME" and "shape NAME". list gets the names there are. 1 also without a catalogue:
 * the host decides in the end, and a file that is not there must not keep anybody from working. */
static int known(const char *kind, const char *name, char *list, size_t room)
{
	char line[512];
	int found = 0;
	FILE *f;
	list[0] = 0;
	if (!conf.catalogue || !name[0] || strncmp(name, "sha256:", 7) == 0 || strstr(name, "://"))
		return 1;
	if (!(f = fopen(conf.catalogue, "re"))) {
		slurm_info("grange: %s: %s: images and shapes are not checked here", conf.catalogue, strerror(errno));
		return 1;
	}
	while (!found && fgets(line, sizeof line, f)) {
		char k[16], n[256];
		if (sscanf(line, "%15s %255s", k, n) != 2 || strcmp(k, kind))
			continue;
		found = strcmp(n, name) == 0;
		if (strlen(list) + strlen(n) + 3 < room)
			sprintf(list + strlen(list), " %s", n);
	}
	fclose(f);
	return found;
}

/* list prints the images and shapes of the catalogue, or has the wrapper ask, and ends the command: nothing is submitted. */
static void __attribute__((noreturn)) list(void)
{
	char line[512];
	if (!conf.catalogue) {
		execl(conf.wrapper, conf.wrapper, "image", "list", (char *)NULL);
		slurm_error("grange: plugstack.conf has no catalogue=, and %s: %s", conf.wrapper, strerror(errno));
		exit(1);
	}
	FILE *f = fopen(conf.catalogue, "re");
	if (!f) {
		slurm_error("grange: %s: %s", conf.catalogue, strerror(errno));
		exit(1);
	}
	while (fgets(line, sizeof line, f))
		fputs(line, stdout);
	fclose(f);
	exit(0);
}

static int on_vm(const char *arg, int remote)
{
	char image[256], shape[256], there[MAX_TEXT];
	if (arg && !remote && !strcmp(arg, "list"))
		list();
	if (!arg || strlen(arg) >= sizeof asked.vm || split(arg, image, shape)) {
		complain(asked.wrong, "--vm=%.200s: wanted IMAGE[:SHAPE], or list", arg ? arg : "");
		if (!remote)
			slurm_error("grange: %s", asked.wrong);
		return -1;
	}
	strcpy(asked.vm, arg);
	if (remote)
		return 0;
	if (!known("image", image, there, sizeof there)) {
		slurm_error("grange: no image %s; there are:%s", image, there[0] ? there : " none");
		return -1;
	}
	if (!known("shape", shape, there, sizeof there)) {
		slurm_error("grange: no shape %s; there are:%s", shape, there[0] ? there : " none");
		return -1;
	}
	return 0;
}

static int sound_mount(const char *one) { return one[0] == '/'; }

static int sound_port(const char *one)
{
	size_t n = strspn(one, "0123456789:");
	return n > 0 && (!one[n] || (one[n] == '@' && one[n + 1] && !one[n + 1 + strspn(one + n + 1, NAME_CHARS)]));
}

static int on_list(struct list *l, const char *arg, int remote)
{
	char copy[MAX_TEXT], *rest = copy, *one;
	const char *why = NULL;
	if (!arg || strlen(arg) >= sizeof copy)
		why = "too long";
	else
		strcpy(copy, arg);
	while (!why && (one = strsep(&rest, ","))) {
		size_t used = strlen(l->text);
		char *p = l->text;
		if (!l->sound(one)) {
			why = l->wanted;
			break;
		}
		for (size_t n; *p; p += n + (p[n] == ',')) {
			n = strcspn(p, ",");
			if (n == strlen(one) && strncmp(p, one, n) == 0)
				break;
		}
		if (*p)
			continue;
		if (used + strlen(one) + 2 > sizeof l->text)
			why = "too many";
		else
			sprintf(l->text + used, "%s%s", used ? "," : "", one);
	}
	if (why) {
		complain(asked.wrong, "%s=%.100s: %s", l->option, arg ? arg : "", why);
		if (!remote)
			slurm_error("grange: %s", asked.wrong);
		return -1;
	}
	l->options++;
	return 0;
}

/* On the host Slurm drops an option whose callback fails, and runs the job without it: there it is kept, with what is wrong with it. */
static int on_option(int which, const char *arg, int remote)
{
	int rc = 0;
	switch (which) {
	case OPT_VM:
		rc = on_vm(arg, remote);
		break;
	case OPT_MOUNT:
		rc = on_list(&asked.mounts, arg, remote);
		break;
	case OPT_PUBLISH:
		rc = on_list(&asked.ports, arg, remote);
		break;
	case OPT_NO_VM:
		asked.no_vm = 1;
		break;
	}
	return remote ? 0 : rc;
}

static struct spank_option options[] = {
	{"vm", "IMAGE[:SHAPE]", "run the job in a virtual machine of its own, from IMAGE, sized as SHAPE says; list: print what there is", 1, OPT_VM, on_option},
	{"vm-mount", "SRC[:DST[:ro]][,...]", "show directories of the host in the virtual machine", 1, OPT_MOUNT, on_option},
	{"vm-publish", "PORT[:HERE][@NAME][,...]", "let yourself, and those whom the site calls NAME, connect to ports of the virtual machine on its host", 1, OPT_PUBLISH, on_option},
	{"no-vm", NULL, "run the job without a virtual machine, where the site allows it", 0, OPT_NO_VM, on_option},
};

/* on_command_line finds OPTION or OPTION=VALUE among the first most arguments. */
static int on_command_line(const char *option, int most)
{
	char *arg = NULL;
	size_t room = 0;
	int found = 0;
	FILE *f = fopen("/proc/self/cmdline", "re");
	while (f && !found && most-- >= 0 && getdelim(&arg, &room, 0, f) > 0)
		found = strcmp(arg, option) == 0 || value_of(arg, option);
	free(arg);
	if (f)
		fclose(f);
	return found;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	configure(ac, av);
	/* sbatch reads its script, from the terminal if need be, before it calls an option's callback. */
	if ((spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR) && on_command_line("--vm=list", 1))
		list();
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
		spank_err_t e = spank_option_register(sp, &options[i]);
		spank_context_t c = spank_context();
		if (e != ESPANK_SUCCESS && (c == S_CTX_LOCAL || c == S_CTX_ALLOCATOR || c == S_CTX_REMOTE)) {
			slurm_error("grange: option --%s: %s", options[i].name, spank_strerror(e));
			return -1;
		}
	}
	if (conf.wrong[0])
		slurm_error("grange: %s", conf.wrong);
	return 0; /* tasks find out; an error here would keep sbatch from working at all */
}

/* Slurm hands on the last value of an option only. The environment that it keeps for plug-ins takes them all. */
static void hand_on(spank_t sp, const struct list *l)
{
	if (!l->text[0])
		return;
	if (setenv(l->variable, l->text, 1) || spank_job_control_setenv(sp, l->variable, l->text, 1) != ESPANK_SUCCESS) {
		slurm_error("grange: %s can not be handed on", l->option);
		exit(1);
	}
}

/* lists_alone is the reason why options that say more of a virtual machine cannot be without one; NULL: there are none. */
static const char *lists_alone(void)
{
	if (asked.mounts.text[0])
		return "--vm-mount without a virtual machine: add --vm=IMAGE, or leave --vm-mount out";
	if (asked.ports.text[0])
		return "--vm-publish without a virtual machine: add --vm=IMAGE, or leave --vm-publish out";
	return NULL;
}

/* At submission, when all options are known. */
int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	spank_context_t c = spank_context();
	(void)ac, (void)av;
	if (c != S_CTX_LOCAL && c != S_CTX_ALLOCATOR)
		return 0;
	if (asked.vm[0] && asked.no_vm) {
		slurm_error("grange: --vm and --no-vm together");
		exit(1); /* also where the plug-in is optional: what was asked for can not be */
	}
	/* Whether root submits for somebody else, --uid=USER, only the command line says. */
	if (asked.vm[0] && getuid() == 0 && !on_command_line("--uid", INT_MAX)) {
		slurm_error("grange: root's jobs get no virtual machine: submit as the user whose job it is");
		exit(1);
	}
	hand_on(sp, &asked.mounts);
	hand_on(sp, &asked.ports);
	return 0;
}

/* refuse ends the task with a status. slurm_error writes to the job's own errors too. */
static void __attribute__((noreturn, format(printf, 2, 3))) refuse(int status, const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	slurm_error("grange: the job was not started: %s", text);
	_exit(status);
}

/* With --export=NONE Slurm hands on no options, and runs the job without them. In the job's environment there is a copy of them all. It is
 * the user's word, as the options are: what may be had by writing there may be asked for as well. */
static void from_environment(char **env)
{
	const char *v;
	int chosen = asked.vm[0] || asked.no_vm || asked.wrong[0], mounted = asked.mounts.options, published = asked.ports.options;
	for (; *env; env++) {
		if (!chosen && (v = value_of(*env, "SLURM_SPANK__SLURM_SPANK_OPTION_grange_vm")))
			on_option(OPT_VM, v, 1);
		else if (!chosen && value_of(*env, "SLURM_SPANK__SLURM_SPANK_OPTION_grange_no_vm"))
			on_option(OPT_NO_VM, NULL, 1);
		else if (!mounted && (v = value_of(*env, "SLURM_SPANK__SLURM_SPANK_OPTION_grange_vm_mount")))
			on_option(OPT_MOUNT, v, 1);
		else if (!published && (v = value_of(*env, "SLURM_SPANK__SLURM_SPANK_OPTION_grange_vm_publish")))
			on_option(OPT_PUBLISH, v, 1);
	}
}

/* How often the job was queued again, from its environment, where Slurm writes it over what the user had there: in 22.05 the item
 * S_SLURM_RESTART_COUNT is always 0. Not there: never. */
static unsigned long restarts(char **env)
{
	const char *v;
	for (; *env; env++)
		if ((v = value_of(*env, "SLURM_RESTART_COUNT")))
			return strtoul(v, NULL, 10);
	return 0;
}

/* due is what a task of this user gets, after from_environment: NULL is metal. why_not gets the reason where it may not even start. */
static const char *due(uid_t uid, const char **why_not)
{
	const char *vm = asked.vm[0] ? asked.vm : NULL;
	*why_not = NULL;
	if (conf.wrong[0])
		*why_not = conf.wrong;
	else if (asked.wrong[0])
		*why_not = asked.wrong;
	else if (vm && asked.no_vm)
		*why_not = "--vm and --no-vm together";
	else if (!vm && conf.fallback && uid >= conf.min_uid) {
		if (!asked.no_vm)
			vm = conf.fallback;
		else if (!conf.allow_metal)
			*why_not = "--no-vm is not allowed on this host";
	}
	/* Where people submit nobody knows whether hosts have a default image. */
	if (!vm && !asked.no_vm && !*why_not)
		*why_not = lists_alone();
	return vm;
}

/* In the step's daemon, as root, after all of its tasks are forked and before any of them starts. When a task ends, that daemon starts the
 * programs of --task-epilog and TaskEpilog on the host as the job's user, before any other hook is asked. For a job in a virtual machine it
 * must not: with no processes allowed, the kernel lets nobody but root start a program once it has become that user. The daemon is root, and
 * the tasks have their own limits by now. */
int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
	uid_t uid;
	const char *why_not;
	char **env;
	struct rlimit limit;
	(void)ac, (void)av;
	if (spank_get_item(sp, S_JOB_UID, &uid) != ESPANK_SUCCESS || spank_get_item(sp, S_JOB_ENV, &env) != ESPANK_SUCCESS || !env) {
		slurm_error("grange: Slurm does not tell the user and environment of its step");
		return -1;
	}
	from_environment(env);
	if (!due(uid, &why_not) && !why_not)
		return 0;
	if (getrlimit(RLIMIT_NPROC, &limit) == 0) {
		limit.rlim_cur = 0;
		if (setrlimit(RLIMIT_NPROC, &limit) == 0)
			return 0;
	}
	slurm_error("grange: limit of processes: %s", strerror(errno));
	return -1;
}

/* The limits of the caller of srun or sbatch, which are variables of the job's environment. Slurm sets them after the plug-ins of a task, and
 * the wrapper is to have them before. As Slurm does it: soft limits, within the hard ones that the task has, and the variables go. */
static void set_limits(spank_t sp, char **env)
{
	static const struct { const char *name; int resource; } limits[] = {
		{"CPU", RLIMIT_CPU}, {"FSIZE", RLIMIT_FSIZE}, {"DATA", RLIMIT_DATA}, {"STACK", RLIMIT_STACK}, {"CORE", RLIMIT_CORE},
		{"RSS", RLIMIT_RSS}, {"NPROC", RLIMIT_NPROC}, {"NOFILE", RLIMIT_NOFILE}, {"MEMLOCK", RLIMIT_MEMLOCK}, {"AS", RLIMIT_AS}};
	static const char prefix[] = "SLURM_RLIMIT_";
	char **kept = env;
	for (; *env; env++) {
		struct rlimit l;
		const char *name = *env + sizeof prefix - 1, *v = NULL;
		size_t i = 0;
		if (strncmp(*env, prefix, sizeof prefix - 1)) {
			*kept++ = *env;
			continue;
		}
		while (i < sizeof limits / sizeof *limits && !(v = value_of(name, limits[i].name)))
			i++;
		if (!v || getrlimit(limits[i].resource, &l))
			continue;
		v += *v == 'U'; /* the user asked for it by --propagate */
		l.rlim_cur = strcmp(v, "-1") ? strtoull(v, NULL, 10) : RLIM_INFINITY;
		if (l.rlim_cur <= l.rlim_max && setrlimit(limits[i].resource, &l))
			slurm_debug("grange: limit %s: %s", name, strerror(errno));
	}
	*kept = NULL;
	uint64_t memory; /* of the step, in MiB */
	struct rlimit l;
	if (spank_get_item(sp, S_STEP_ALLOC_MEM, &memory) == ESPANK_SUCCESS && memory && !getrlimit(RLIMIT_RSS, &l) && memory << 20 < l.rlim_max) {
		l.rlim_cur = l.rlim_max = memory << 20;
		setrlimit(RLIMIT_RSS, &l); /* Linux does nothing with it */
	}
}

/* count is how many values there are, or one more. */
static size_t count(const struct list *l)
{
	size_t n = 1;
	for (const char *c = l->text; *c; c++)
		n += *c == ',';
	return n;
}

/* put adds an option of the wrapper for each value, which it takes from the list. */
static size_t put(char **argv, size_t n, char *option, struct list *l)
{
	char *rest = l->text, *one;
	while (l->text[0] && (one = strsep(&rest, ","))) {
		argv[n++] = option;
		argv[n++] = one;
	}
	return n;
}

/* In the task's process, as the job's user, in its directory, control groups and limits, right before the job itself. */
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	uid_t uid = getuid();
	const char *vm, *why_not;
	char image[256], shape[256], **job, **env;
	int jobc;
	(void)ac, (void)av;

	if (spank_get_item(sp, S_JOB_ENV, &env) != ESPANK_SUCCESS || !env)
		refuse(NEVER, "Slurm does not tell its environment");
	from_environment(env);
	vm = due(uid, &why_not);
	if (why_not)
		refuse(NEVER, "%s", why_not);
	if (!vm)
		return 0; /* on the host */
	if (uid == 0 || geteuid() == 0 || getegid() == 0)
		refuse(NEVER, "root's jobs get no virtual machine");
	image[0] = shape[0] = 0;
	if (strcmp(vm, BY_POLICY) && split(vm, image, shape))
		refuse(NEVER, "%s is no IMAGE[:SHAPE]", vm);
	if (spank_get_item(sp, S_JOB_ARGV, &jobc, &job) != ESPANK_SUCCESS || jobc < 1 || !job || !job[0])
		refuse(NEVER, "Slurm does not tell its command");

	char **argv = calloc(MAX_ARGS + 2 * (count(&asked.mounts) + count(&asked.ports)) + (size_t)jobc, sizeof *argv);
	size_t n = 0;
	if (!argv)
		refuse(NEVER, "no memory");
	argv[n++] = (char *)conf.wrapper;
	argv[n++] = "--socket"; /* GRANGE_SOCKET in the environment is the user's word */
	argv[n++] = (char *)conf.socket;
	argv[n++] = "exec";
	argv[n++] = "--batch";
	argv[n++] = "slurm";
	if (image[0]) {
		argv[n++] = "--image";
		argv[n++] = image;
	}
	if (shape[0]) {
		argv[n++] = "--shape";
		argv[n++] = shape;
	}
	if (conf.prolog) {
		argv[n++] = "--task-prolog";
		argv[n++] = (char *)conf.prolog;
	}
	n = put(argv, n, "--bind", &asked.mounts);
	n = put(argv, n, "--publish", &asked.ports);
	argv[n++] = "--";
	set_limits(sp, env);
	for (int i = 0; i < jobc && job[i]; i++)
		argv[n++] = job[i];
	execve(conf.wrapper, argv, env);
	int why = errno; /* a host without the wrapper: another may have it, but not without end */
	refuse(restarts(env) < conf.requeues ? AGAIN : NEVER, "%s: %s", conf.wrapper, strerror(why));
}
