/* Calls the plug-in's prolog without a Slurm: as slurmd does, for job 7. Its arguments are those in plugstack.conf. */
#include PLUGIN

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
	va_list args;
	(void)sp;
	if (item != S_JOB_ID)
		return ESPANK_BAD_ARG;
	va_start(args, item);
	*va_arg(args, uint32_t *) = 7;
	va_end(args);
	return ESPANK_SUCCESS;
}

#define SAYS(name)                                  \
	void name(const char *format, ...)          \
	{                                           \
		va_list args;                       \
		va_start(args, format);             \
		vfprintf(stderr, format, args);     \
		va_end(args);                       \
	}
SAYS(slurm_error)
SAYS(slurm_info)
spank_context_t spank_context(void) { return S_CTX_JOB_SCRIPT; }
const char *spank_strerror(spank_err_t e) { (void)e; return "?"; }
spank_err_t spank_option_register(spank_t sp, struct spank_option *o) { (void)sp; (void)o; return ESPANK_ERROR; }
spank_err_t spank_job_control_setenv(spank_t sp, const char *n, const char *v, int o) { (void)sp; (void)n; (void)v; (void)o; return ESPANK_ERROR; }

int main(int ac, char **av) { return slurm_spank_job_prolog(NULL, ac - 1, av + 1) == 0 ? 0 : 1; }
