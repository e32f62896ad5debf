/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What the importer of dma-bufs and the tests agree on. Each open file of
 * /dev/importer is an attachment.
 */
#ifndef IMPORTER_H
#define IMPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define IMPORTER_BIDIRECTIONAL	0
#define IMPORTER_TO_DEVICE	1
#define IMPORTER_FROM_DEVICE	2

/* Attaches the dma-buf to a device, the limits of which are set before. */
struct importer_attach {
	__s32 fd;
	__u32 slot;		/* of an edu device on PCI; 0 and 1: without hardware or IOMMU */
	__u32 mask_bits;
	__u32 max_segment;	/* bytes */
	__u64 boundary;		/* what no segment crosses, minus 1 */
};

/* Maps it, once more each time. */
struct importer_map {
	__u32 direction;
	__u32 pieces;		/* out: segments as the exporter cut them */
	__u32 segments;		/* out: and as the device has them */
	__u32 reserved;
	__u64 smallest;		/* out: bytes of the device's segments */
	__u64 largest;
	__u64 bytes;		/* out: of all of them */
	__u64 highest;		/* out: address of the last byte that the device sees */
};

/* From another attachment to the same device, by its DMA engine. */
struct importer_move {
	__s32 source_fd;
	__u32 length;
	__u64 from;
	__u64 to;
};

/* Eight bytes, as the device finds them. */
struct importer_word {
	__u64 offset;
	__u64 before;		/* out */
};

#define IMPORTER_ATTACH	_IOW('I', 1, struct importer_attach)
#define IMPORTER_DETACH	_IO('I', 2)
#define IMPORTER_MAP	_IOWR('I', 3, struct importer_map)
#define IMPORTER_UNMAP	_IO('I', 4)
#define IMPORTER_MOVE	_IOW('I', 5, struct importer_move)
#define IMPORTER_PEEK	_IOWR('I', 6, struct importer_word)
/* 0 if the IOMMU does not let the device reach the latest mapping's start; EBUSY if it does. */
#define IMPORTER_GONE	_IO('I', 7)
/* Writes a byte of the calling process at this address, from a kernel thread. */
#define IMPORTER_TOUCH	_IOW('I', 8, __u64)

#endif
