/* The constants of invar/invar.h that hosts compare with. In Go they are constants of the hand-written layer. */
#ifndef SWIGGO
%javaconst(1);
#define INVAR_ABI_VERSION 0
#define INVAR_LOG_DEBUG 1
#define INVAR_LOG_INFO 2
#define INVAR_LOG_WARNING 3
#define INVAR_LOG_ERROR 4
#define INVAR_PROGRESS_WORK 1
#define INVAR_PROGRESS_STEP 2
#define INVAR_PROGRESS_EVAL 3
#define INVAR_PROGRESS_NOTE 4
#define INVAR_LADDER_NONE 0
#define INVAR_LADDER_RAISED 1
#define INVAR_LADDER_FELL_BACK 2
#define INVAR_LADDER_FINAL 3
#define INVAR_GRANULARITY_TENSOR 1
#define INVAR_GRANULARITY_ROW 2
#define INVAR_GRANULARITY_BLOCK 3
#define INVAR_STATE_MASTER 1
#define INVAR_STATE_FIRST_MOMENT 2
#define INVAR_STATE_SECOND_MOMENT 3
#define INVAR_MAX_RANK 8
#endif
