/* SPDX-License-Identifier: BSD-2-Clause */
#include "bpf/capture_attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* enum bpf_attach_type since Linux 6.6; the headers may be older than the kernel */
#define TCX_INGRESS 46
#define TCX_EGRESS 47

int capture_fail(struct capture_error *error, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return err;
}

/* Returns whether a link holds the XDP program `id` on an interface with this index. */
static bool held_by_link(uint32_t id, uint32_t ifindex)
{
	uint32_t link_id = 0;

	while (!bpf_link_get_next_id(link_id, &link_id)) {
		struct bpf_link_info info = {0};
		uint32_t size = sizeof(info);
		int fd = bpf_link_get_fd_by_id(link_id), err;

		if (fd < 0)
			continue;
		err = bpf_obj_get_info_by_fd(fd, &info, &size);
		close(fd);
		if (!err && info.type == BPF_LINK_TYPE_XDP && info.prog_id == id &&
		    info.xdp.ifindex == ifindex)
			return true;
	}
	return false;
}

static uint32_t mode_flags(uint8_t attach_mode)
{
	switch (attach_mode) {
	case XDP_ATTACHED_SKB:
		return XDP_FLAGS_SKB_MODE;
	case XDP_ATTACHED_HW:
		return XDP_FLAGS_HW_MODE;
	}
	return XDP_FLAGS_DRV_MODE;
}

/* Finds the attached XDP program; *ret_fd is its descriptor, or -1 if there is none. */
static int find_foreign(uint32_t ifindex, struct capture_foreign *foreign, uint32_t *ret_flags,
			int *ret_fd, struct capture_error *error)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, query);
	struct bpf_prog_info info = {0};
	uint32_t size = sizeof(info);
	int err;

	*ret_fd = -1;
	memset(foreign, 0, sizeof(*foreign));
	err = bpf_xdp_query((int)ifindex, 0, &query);
	if (err)
		return capture_fail(error, err,
				    "the interface does not say which XDP program it runs: %s",
				    strerror(-err));
	if (query.attach_mode == XDP_ATTACHED_NONE)
		return 0;
	foreign->id = query.prog_id       ? query.prog_id
		      : query.drv_prog_id ? query.drv_prog_id
					  : query.skb_prog_id;
	*ret_flags = mode_flags(query.attach_mode);
	*ret_fd = bpf_prog_get_fd_by_id(foreign->id);
	if (*ret_fd >= 0 && !bpf_obj_get_info_by_fd(*ret_fd, &info, &size))
		memcpy(foreign->name, info.name, sizeof(foreign->name) - 1);
	foreign->by_link = held_by_link(foreign->id, ifindex);
	return 0;
}

static int link_xdp(int prog_fd, uint32_t ifindex, uint32_t flags, struct attachment *ret)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = flags);
	int fd = bpf_link_create(prog_fd, (int)ifindex, BPF_XDP, &opts);

	if (fd < 0)
		return fd;
	ret->link_fd = fd;
	ret->mode = flags == XDP_FLAGS_DRV_MODE ? CAPTURE_XDP_NATIVE : CAPTURE_XDP_GENERIC;
	return 0;
}

static int take_out(uint32_t ifindex, int fd, uint32_t flags)
{
	LIBBPF_OPTS(bpf_xdp_attach_opts, opts, .old_prog_fd = fd);

	return bpf_xdp_attach((int)ifindex, -1, flags | XDP_FLAGS_REPLACE, &opts);
}

static int put_back(struct attachment *attachment, struct capture_error *error)
{
	int err = 0;

	if (attachment->replaced_fd < 0)
		return 0;
	err = bpf_xdp_attach((int)attachment->ifindex, attachment->replaced_fd,
			     attachment->xdp_flags | XDP_FLAGS_UPDATE_IF_NOEXIST, NULL);
	close(attachment->replaced_fd);
	attachment->replaced_fd = -1;
	if (err && err != -ENODEV)
		return capture_fail(error, err,
				    "the XDP program that was replaced could not be put back (%s): "
				    "attach it again with the tool that it belongs to",
				    strerror(-err));
	return 0;
}

int attach_xdp(int prog_fd, uint32_t ifindex, const struct capture_options *options,
	       struct capture_foreign *foreign, struct attachment *ret, struct capture_error *error)
{
	struct capture_error ignored;
	int err, fd;

	*ret = (struct attachment){.ifindex = ifindex, .link_fd = -1, .replaced_fd = -1};
	err = find_foreign(ifindex, foreign, &ret->xdp_flags, &fd, error);
	if (err)
		return err;
	if (foreign->id && (!options->replace || foreign->by_link || fd < 0)) {
		if (fd >= 0)
			close(fd);
		return capture_fail(
			error, -EBUSY,
			"XDP program %u (%s) is attached%s: capture beside it with --hook tc%s",
			foreign->id, foreign->name[0] ? foreign->name : "no name",
			foreign->by_link ? " and held by a BPF link" : "",
			foreign->by_link ? "" : ", or in its place with --replace");
	}
	if (foreign->id) {
		err = take_out(ifindex, fd, ret->xdp_flags);
		if (err) {
			close(fd);
			return capture_fail(error, err,
					    "XDP program %u (%s) cannot be replaced: %s",
					    foreign->id, foreign->name, strerror(-err));
		}
		ret->replaced_fd = fd;
	}
	err = link_xdp(prog_fd, ifindex, XDP_FLAGS_DRV_MODE, ret);
	if (err && err != -EBUSY && err != -EPERM && err != -ENODEV && !options->native_only)
		err = link_xdp(prog_fd, ifindex, XDP_FLAGS_SKB_MODE, ret);
	if (!err)
		return 0;
	put_back(ret, &ignored);
	if (err == -EPERM)
		return capture_fail(error, err,
				    "attaching XDP programs is not permitted: run it as root");
	return capture_fail(error, err, "XDP cannot be attached (%s): use --hook tc",
			    strerror(-err));
}

static int attach_clsact(int prog_fd, struct attachment *ret, struct capture_error *error)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)ret->ifindex,
		    .attach_point = ret->egress ? BPF_TC_EGRESS : BPF_TC_INGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .prog_fd = prog_fd);
	int err = bpf_tc_hook_create(&hook);

	ret->made_qdisc = !err;
	if (!err || err == -EEXIST)
		err = bpf_tc_attach(&hook, &opts);
	if (err)
		return capture_fail(error, err, "tc %s cannot be attached: %s",
				    ret->egress ? "egress" : "ingress", strerror(-err));
	ret->handle = opts.handle;
	ret->priority = opts.priority;
	ret->mode = CAPTURE_CLSACT;
	return 0;
}

static void detach_clsact(const struct attachment *attachment)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)attachment->ifindex,
		    .attach_point = attachment->egress ? BPF_TC_EGRESS : BPF_TC_INGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = attachment->handle,
		    .priority = attachment->priority);

	bpf_tc_detach(&hook, &opts);
	if (!attachment->made_qdisc)
		return;
	hook.attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS;
	bpf_tc_hook_destroy(&hook);
}

int attach_tc(int prog_fd, uint32_t ifindex, bool egress, const struct capture_options *options,
	      struct attachment *ret, struct capture_error *error)
{
	int fd = -EINVAL;

	*ret = (struct attachment){
		.ifindex = ifindex, .link_fd = -1, .replaced_fd = -1, .egress = egress};
	if (!options->without_links)
		fd = bpf_link_create(prog_fd, (int)ifindex, egress ? TCX_EGRESS : TCX_INGRESS,
				     NULL);
	if (fd >= 0) {
		ret->link_fd = fd;
		ret->mode = CAPTURE_TCX;
		return 0;
	}
	if (fd == -EINVAL) /* a kernel that does not know the attach type */
		return attach_clsact(prog_fd, ret, error);
	return capture_fail(error, fd, "tc %s cannot be attached: %s",
			    egress ? "egress" : "ingress", strerror(-fd));
}

int detach(struct attachment *attachment, struct capture_error *error)
{
	if (attachment->mode == CAPTURE_DETACHED)
		return 0;
	if (attachment->mode == CAPTURE_CLSACT)
		detach_clsact(attachment);
	if (attachment->link_fd >= 0)
		close(attachment->link_fd);
	attachment->link_fd = -1;
	attachment->mode = CAPTURE_DETACHED;
	return put_back(attachment, error);
}
