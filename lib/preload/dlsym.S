/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * dlsym() and dlvsym(), which programs find before the C library's. This dlsym() passes names that
 * begin with "cu" to cuda_lookup(). This dlvsym() passes all names to cuda_lookup_versioned(). If
 * cuda_lookup() or cuda_lookup_versioned() returns NULL, or is not called, the code jumps to the
 * next library's dlsym() or dlvsym(). The jump keeps the return address, because the C library
 * identifies the calling library by this address. RTLD_NEXT, RTLD_DEFAULT and the error message of
 * dlerror() depend on the calling library. C cannot express such a jump.
 *
 * These functions exist only on x86-64.
 */
#ifdef __x86_64__

/* Declares that all targets of indirect jumps in this file are marked (endbr64). */
#ifdef __CET__
#include <cet.h>
#endif

	.macro	save register
	pushq	%\register
	.cfi_adjust_cfa_offset 8
	.endm

	.macro	restore register
	popq	%\register
	.cfi_adjust_cfa_offset -8
	.endm

	/* Saves the three arguments of dlvsym(), or the two of dlsym(), and aligns the stack. */
	.macro	save_arguments
	save	rdi
	save	rsi
	save	rdx
	.endm

	.macro	restore_arguments
	restore	rdx
	restore	rsi
	restore	rdi
	.endm

#define RETURN_ADDRESS	24(%rsp)

	.macro	function name
	.p2align 4
	.type	\name, @function
\name:
	.cfi_startproc
	endbr64
	.endm

	.macro	end name
	.cfi_endproc
	.size	\name, . - \name
	.endm

	.text
	.globl	dlsym
	function dlsym
	testq	%rsi, %rsi
	je	1f
	cmpb	$'c', (%rsi)
	jne	1f
	cmpb	$'u', 1(%rsi)
	jne	1f
	save_arguments
	xorl	%edx, %edx
	movq	RETURN_ADDRESS, %rcx
	call	cuda_lookup
	restore_arguments
	testq	%rax, %rax
	jne	2f
1:	jmp	*next_dlsym(%rip)
2:	ret
	end	dlsym

	.globl	dlvsym
	function dlvsym
	save_arguments
	movq	RETURN_ADDRESS, %rcx
	call	cuda_lookup_versioned
	restore_arguments
	testq	%rax, %rax
	jne	1f
	jmp	*next_dlvsym(%rip)
1:	ret
	end	dlvsym

	/*
	 * next_dlsym and next_dlvsym point to these two functions until symbols_find_next() has
	 * run.
	 */
	.globl	first_dlsym
	.hidden	first_dlsym
	function first_dlsym
	save_arguments
	call	symbols_find_next
	restore_arguments
	jmp	*next_dlsym(%rip)
	end	first_dlsym

	.globl	first_dlvsym
	.hidden	first_dlvsym
	function first_dlvsym
	save_arguments
	call	symbols_find_next
	restore_arguments
	jmp	*next_dlvsym(%rip)
	end	first_dlvsym

#endif

	.section .note.GNU-stack, "", %progbits
