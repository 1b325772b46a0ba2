function slurm_cli_setup_defaults(options, early_pass)
	return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
	local spank = options["spank"]
	local vm = spank and spank["grange"] and spank["grange"]["vm"]
	if vm then
		local comment = options["comment"]
		options["comment"] = (comment and comment .. " " or "") .. "grange:vm=" .. vm
	end
	return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
	return slurm.SUCCESS
end
