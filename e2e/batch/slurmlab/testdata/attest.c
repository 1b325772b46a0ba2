/* Loads the plug-in as slurmd does when it starts, without a Slurm. Its arguments are those in plugstack.conf. It prints the word's name. */
#include PLUGIN

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...) { (void)sp; (void)item; return ESPANK_ERROR; }

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
spank_context_t spank_context(void) { return S_CTX_SLURMD; }
const char *spank_strerror(spank_err_t e) { (void)e; return "?"; }
spank_err_t spank_option_register(spank_t sp, struct spank_option *o) { (void)sp; (void)o; return ESPANK_ERROR; }
spank_err_t spank_job_control_setenv(spank_t sp, const char *n, const char *v, int o) { (void)sp; (void)n; (void)v; (void)o; return ESPANK_ERROR; }

int main(int ac, char **av)
{
	char name[32];
	attest_name(name);
	puts(name);
	for (int i = 0; i < 2; i++) /* the second finds the file of a process that had our number */
		if (slurm_spank_init(NULL, ac - 1, av + 1))
			return 1;
	return 0;
}
